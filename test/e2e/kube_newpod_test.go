package e2e

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// newPodVariable enables TestNewPodIsKnown. Its value is the number of pods.
const newPodVariable = "FAIRLEAD_NEW_PODS"

// newPodManifest is a pod that tries to connect from its first moment on, and then prints how long it took in
// nanoseconds.
const newPodManifest = `{apiVersion: v1, kind: Pod, metadata: {name: NAME, namespace: known, labels: {role: ROLE}}, spec: {nodeName: NODE, restartPolicy: Never, terminationGracePeriodSeconds: 0,
containers: [{name: c, image: IMAGE, command: [bash, -c, "b=$(date +%s%N); until /agnhost connect --timeout=50ms ADDRESS:8080; do :; done; e=$(date +%s%N); echo took $((e-b))"]}]}}`

// TestNewPodIsKnown measures how long a new pod is unknown to another node, whose policy allows its label. A policy
// that allows all is the comparison, in turn.
func TestNewPodIsKnown(t *testing.T) {
	n, err := strconv.Atoi(kerneltest.OptIn(t, newPodVariable))
	if err != nil {
		t.Fatal(err)
	}
	p := build(t)
	copyRelease(t, p)
	k := conformanceKinds()[0]
	c := newKubeCluster(t, p, kubernetesPrograms(t, k.version), k)
	image := agnhostImage(t)
	c.load(t, image)
	c.waitForPolicy(t)
	create := func(text string) {
		t.Helper()
		if err := os.WriteFile(c.control.path("/run/object.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c.mustKubectl(t, "apply", "-f", "/run/object.yaml")
	}
	phase := func(pod, want string) {
		t.Helper()
		c.mustKubectl(t, "-n", "known", "wait", "--for=jsonpath={.status.phase}="+want, "pod/"+pod, "--timeout=2m")
	}
	create(`{apiVersion: v1, kind: Namespace, metadata: {name: known}}`)
	create(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: server, namespace: known, labels: {app: server}}, spec: {nodeName: %s, containers: [{name: c, image: %s, args: [netexec, --http-port=8080]}]}}`, c.hosts[0].name, image.names[0]))
	create(`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: server, namespace: known}, spec: {podSelector: {matchLabels: {app: server}}, ingress: [{from: [{podSelector: {matchLabels: {role: web}}}]}]}}`)
	phase("server", "Running")
	address := strings.TrimSpace(c.mustKubectl(t, "-n", "known", "get", "pod", "server", "-o", "jsonpath={.status.podIP}"))
	took := map[string][]time.Duration{}
	for i := range n {
		for _, role := range []string{"web", "all"} {
			if role == "all" {
				create(`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: all, namespace: known}, spec: {podSelector: {}, ingress: [{}]}}`)
				time.Sleep(time.Second)
			}
			name := fmt.Sprint(role, i)
			create(strings.NewReplacer("NAME", name, "ROLE", role, "NODE", c.hosts[1].name, "IMAGE", image.names[0], "ADDRESS", address).Replace(newPodManifest))
			phase(name, "Succeeded")
			out := strings.Fields(c.mustKubectl(t, "-n", "known", "logs", name))
			ns, err := strconv.ParseInt(out[len(out)-1], 10, 64)
			if err != nil {
				t.Fatalf("%v: %v", out, err)
			}
			took[role] = append(took[role], time.Duration(ns))
			c.mustKubectl(t, "-n", "known", "delete", "pod", name, "--wait=true")
			if role == "all" {
				c.mustKubectl(t, "-n", "known", "delete", "netpol", "all")
				time.Sleep(time.Second)
			}
		}
	}
	for role, list := range took {
		slices.Sort(list)
		t.Logf("%s: median %v, largest %v, of %d", role, list[len(list)/2].Round(time.Millisecond), list[len(list)-1].Round(time.Millisecond), len(list))
	}
}
