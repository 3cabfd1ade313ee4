package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/test/fromsource"
)

const whereaboutsVersion = "v0.9.2"

// manifestsNamespace is the namespace of other projects' manifests, which name none.
const manifestsNamespace = "manifests"

// foreignManifests applies the manifests of Multus' and whereabouts' repositories as they are: examples, those of Multus'
// own tests, and those of whereabouts' README. The nodes get what the manifests expect: links eth0 and eth1, the host
// names of a kind cluster, and images that need no registry.
func foreignManifests(t *testing.T, c *cluster) {
	multus, err := fromsource.Source("gopkg.in/k8snetworkplumbingwg/multus-cni.v4@" + multusVersion)
	whereabouts, err2 := fromsource.Source("github.com/k8snetworkplumbingwg/whereabouts@" + whereaboutsVersion)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	image := image{
		names: []string{"docker.io/dougbtv/centos-network:latest", "docker.io/library/centos:8", "docker.io/nicolaka/netshoot:latest"},
		files: map[string][]byte{"etc/passwd": []byte("root:x:0:0:root:/:/bin/bash\n")},
	}
	image.addTools(t, "bash sleep ip ping")
	c.load(t, image)
	for i, n := range c.hosts {
		n.shell(t, "ip link property add dev up0 altname eth0 altname eth1")
		t.Cleanup(func() { n.shell(t, "ip link property del dev up0 altname eth0 altname eth1") })
		c.mustKubectl(t, "label", "node", n.name, "--overwrite", "kubernetes.io/hostname="+[]string{"kind-worker", "kind-worker2"}[i])
		t.Cleanup(func() { c.mustKubectl(t, "label", "node", n.name, "--overwrite", "kubernetes.io/hostname="+n.name) })
	}
	c.apply(t, "manifests.yaml", map[string]string{})
	t.Cleanup(func() { c.mustKubectl(t, "delete", "-f", "/run/manifests.yaml", "--timeout=60s") })
	// Wait for the API server to apply the policy to new pods.
	c.applyForeign(t, "warm-up", read(t, multus, "e2e/templates/simple-pod.yml.j2"))
	c.deleteForeign(t)

	c.applyForeign(t, "macvlan-pod", read(t, multus, "examples/macvlan-pod.yml"))
	pod := c.foreignPods(t, 1)["samplepod"]
	if len(pod) != 2 || pod[1].IPs[0] != "10.1.1.101" || pod[1].Mac != "c2:b0:57:49:47:f1" {
		t.Errorf("network-status of samplepod is %+v", pod)
	}
	c.deleteForeign(t)

	c.applyForeign(t, "static-pod", read(t, multus, "e2e/static-pod-nad.yml"), read(t, multus, "e2e/simple-static-pod.yml"))
	if pod := c.foreignPods(t, 1)["static-web"]; len(pod) != 2 || !strings.HasPrefix(pod[1].IPs[0], "10.10.0.") {
		t.Errorf("network-status of static-web is %+v", pod)
	}
	c.deleteForeign(t)

	c.applyForeign(t, "macvlan", read(t, multus, "e2e/templates/simple-macvlan1.yml.j2"))
	c.foreignPods(t, 2)
	c.inForeign(t, "macvlan1-worker1", "ping -c 1 -w 10 10.1.1.12")
	c.inForeign(t, "macvlan1-worker2", "ping -c 1 -w 10 10.1.1.11")
	c.deleteForeign(t)

	c.applyForeign(t, "default-route", read(t, multus, "e2e/templates/default-route1.yml.j2"))
	pods := c.foreignPods(t, 2)
	for name, address := range map[string]string{"default-route-worker1": "10.1.1.21", "default-route-worker2": "10.1.1.22"} {
		if pod := pods[name]; len(pod) != 2 || pod[1].IPs[0] != address {
			t.Errorf("network-status of %s is %+v", name, pod)
		}
		route := c.inForeign(t, name, "ip route show default")
		if through := strings.Contains(route, "via 10.1.1.254 dev net1"); through != strings.HasSuffix(name, "1") || strings.Count(route, "default") != 1 {
			t.Errorf("the default route of %s is %q", name, route)
		}
	}
	c.deleteForeign(t)

	c.applyForeign(t, "scale", read(t, whereabouts, "yamls/whereaboutsScaleNAD.yaml"), read(t, whereabouts, "yamls/scaleTestDeployment.yaml"))
	owner := map[string]string{}
	for name, pod := range c.foreignPods(t, 10) {
		if len(pod) != 2 || !strings.HasPrefix(pod[1].IPs[0], "192.168.2.") || owner[pod[1].IPs[0]] != "" {
			t.Errorf("network-status of %s is %+v", name, pod)
			continue
		}
		owner[pod[1].IPs[0]] = name
	}
	for address, name := range owner {
		for other := range owner {
			if other != address {
				c.inForeign(t, name, "ping -c 1 -w 10 "+other)
			}
		}
		break // one pod to all others, of which half are on the other node
	}
	c.deleteForeign(t)

	blocks := regexp.MustCompile("(?s)```\n(?:cat <<'EOF' [^\n]*\n)?(apiVersion:.*?)(?:EOF\n)?```").FindAllStringSubmatch(read(t, whereabouts, "README.md"), -1)
	if len(blocks) != 4 {
		t.Fatalf("whereabouts' README has %d manifests", len(blocks))
	}
	var manifests []string
	for _, b := range blocks {
		manifests = append(manifests, b[1])
	}
	c.applyForeign(t, "readme", manifests...)
	for name, pod := range c.foreignPods(t, 1) {
		if len(pod) != 2 || !strings.HasPrefix(pod[1].IPs[0], "192.168.2.2") {
			t.Errorf("network-status of %s is %+v", name, pod)
		}
	}
	c.deleteForeign(t)
	if left := c.mustKubectl(t, "get", "ipaddresses.fairlead.io", "-o", "name"); strings.Contains(left, "192.168.2.") {
		t.Errorf("addresses are left: %s", left)
	}
	c.checkHealthy(t)
}

// read returns a file of a module. Multus' tests set the version in theirs.
func read(t *testing.T, dir, file string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(raw), "{{ CNI_VERSION }}", "0.4.0")
}

// applyForeign applies manifests, and waits until their pods are ready.
func (c *cluster) applyForeign(t *testing.T, name string, manifests ...string) {
	t.Helper()
	c.control.write(t, "/run/foreign.yaml", strings.Join(manifests, "\n---\n"))
	t.Log(name, c.mustKubectl(t, "-n", manifestsNamespace, "apply", "-f", "/run/foreign.yaml"))
	// Wait for the pods to exist, and to be ready.
	kerneltest.Within(t, 2*time.Minute, func() error {
		out, err := c.kubectl("-n", manifestsNamespace, "wait", "--for=condition=Ready", "pod", "--all", "--timeout=5s")
		if err == nil && out == "" {
			err = errors.New("no pods")
		}
		return err
	})
}

// deleteForeign deletes what applyForeign created.
func (c *cluster) deleteForeign(t *testing.T) {
	t.Helper()
	c.mustKubectl(t, "-n", manifestsNamespace, "delete", "-f", "/run/foreign.yaml", "--ignore-not-found", "--grace-period=1", "--timeout=60s")
	c.mustKubectl(t, "-n", manifestsNamespace, "wait", "--for=delete", "pod", "--all", "--timeout=60s")
}

// foreignPods returns the annotation network-status of each pod.
func (c *cluster) foreignPods(t *testing.T, want int) map[string][]networkStatus {
	t.Helper()
	var pods map[string][]networkStatus
	kerneltest.Within(t, time.Minute, func() error {
		var list struct {
			Items []struct {
				Metadata struct {
					Name        string
					Annotations map[string]string
				}
			}
		}
		text, err := c.kubectl("-n", manifestsNamespace, "get", "pods", "-o", "json")
		if err == nil {
			err = json.Unmarshal([]byte(text), &list)
		}
		pods = map[string][]networkStatus{}
		for _, p := range list.Items {
			var status []networkStatus
			err = errors.Join(err, json.Unmarshal([]byte(p.Metadata.Annotations["k8s.v1.cni.cncf.io/network-status"]), &status))
			pods[p.Metadata.Name] = status
		}
		if err == nil && len(pods) != want {
			err = fmt.Errorf("%d pods, want %d", len(pods), want)
		}
		return err
	})
	return pods
}

// inForeign runs a command in a pod.
func (c *cluster) inForeign(t *testing.T, pod, command string) string {
	t.Helper()
	return c.mustKubectl(t, append([]string{"-n", manifestsNamespace, "exec", pod, "--"}, strings.Fields(command)...)...)
}
