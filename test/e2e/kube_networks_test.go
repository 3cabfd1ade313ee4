package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/contrib/kubernetes"
	"github.com/fairlead/fairlead/internal/kubetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// podNetworksVariable enables the test of pods with several networks. Its value is "yes".
const podNetworksVariable = "FAIRLEAD_E2E_POD_NETWORKS"

// TestPodNetworks runs pods with several networks in a cluster of two nodes, with a real kubelet and containerd.
func TestPodNetworks(t *testing.T) {
	kerneltest.OptIn(t, podNetworksVariable) // it builds Kubernetes
	p := build(t)
	copyRelease(t, p)
	c := newKubeCluster(t, p, kubernetesPrograms(t, kubetest.Version), clusterKind{version: kubetest.Version, nodes: 2, mode: "nftables", network: kubernetesAgent})
	c.setPodNetworks(t, true)
	for _, n := range c.hosts {
		n.write(t, "/etc/cni/multus/net.d/file.conf", `{"cniVersion": "1.0.0", "name": "file", "type": "bridge", "bridge": "file0", "ipam": {"type": "host-local", "subnet": "10.63.0.0/24"}}`)
	}
	c.apply(t, "networks.yaml", map[string]string{})
	for _, one := range []struct {
		name string
		run  func(*testing.T, *cluster)
	}{
		{"two pods on three networks", podsOnNetworks},
		{"addresses of whereabouts on two nodes", whereaboutsNetworks},
		{"ipvlan", ipvlanNetwork},
		{"a bridge with a link to the other node", bridgedNetwork},
		{"network policy in isolated networks", policyInIsolatedNetworks},
		{"isolated networks on two nodes", isolatedNetworks},
		{"a definition that is created after the pod", laterDefinition},
		{"devices of a device plugin", devicesOfPods},
		{"without agents", networksWithoutAgents},
		{"containerd and kubelet killed", networksAfterKill},
		{"from Multus and back", switchToMultusAndBack},
		{"manifests of Multus and whereabouts", foreignManifests},
	} {
		t.Run(one.name, func(t *testing.T) { one.run(t, c) })
	}
}

// setPodNetworks applies the manifest with podNetworks.enabled, and waits until each node has the new configuration.
func (c *cluster) setPodNetworks(t *testing.T, enabled bool) {
	t.Helper()
	c.renderAgents(t, podNetworkValues(enabled))
	c.applyAgents(t)
	for _, n := range c.hosts {
		kerneltest.Within(t, time.Minute, func() error {
			text, err := n.run("cat", "/etc/cni/net.d/10-fairlead.conflist")
			if err == nil && strings.Contains(text, "fairlead-pod") != enabled {
				err = errors.New("the configuration of " + n.name + " is\n" + text)
			}
			return err
		})
	}
}

// podNetworkValues returns the values of the manifest with and without podNetworks.
func podNetworkValues(enabled bool) kubernetes.Values {
	return kubernetes.Values{
		"podNetworks":      map[string]any{"enabled": enabled},
		"isolatedNetworks": true,
		"network":          map[string]any{"subnets": []any{map[string]any{"cidr": podRange, "assign": "podCIDR"}}},
	}
}

// networkStatus is an element of the annotation network-status.
type networkStatus struct {
	Name, Interface, Mac string
	IPs                  []string
	Default              bool
}

// severalPod starts a pod with networks on a node, and returns what its annotation network-status says.
func (c *cluster) severalPod(t *testing.T, name, networks string, n *kubeNode) (kubePod, []networkStatus) {
	t.Helper()
	c.startSeveral(t, name, networks, n)
	return c.waitForSeveral(t, name)
}

func (c *cluster) startSeveral(t *testing.T, name, networks string, n *kubeNode) {
	t.Helper()
	c.startWithLimits(t, name, networks, "{}", n)
}

// startWithLimits starts a pod with networks and with limits of resources.
func (c *cluster) startWithLimits(t *testing.T, name, networks, limits string, n *kubeNode) {
	t.Helper()
	values := map[string]string{"NAME": name, "NETWORKS": networks, "LIMITS": limits, "NODE": n.name, "IMAGE": imageName}
	c.control.write(t, "/run/"+name+".yaml", fill(t, "several.yaml", values))
	c.mustKubectl(t, "apply", "-f", "/run/"+name+".yaml")
}

func (c *cluster) waitForSeveral(t *testing.T, name string) (kubePod, []networkStatus) {
	t.Helper()
	c.mustKubectl(t, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=90s")
	pods := c.pods(t, "several")
	i := slices.IndexFunc(pods, func(p kubePod) bool { return p.name == name })
	if i < 0 {
		t.Fatalf("no pod %s in %v", name, pods)
	}
	return pods[i], c.networkStatus(t, name)
}

func (c *cluster) networkStatus(t *testing.T, name string) (list []networkStatus) {
	t.Helper()
	kerneltest.Within(t, 30*time.Second, func() error {
		text, err := c.kubectl("get", "pod", name, "-o", `jsonpath={.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}`)
		if err == nil {
			err = json.Unmarshal([]byte(text), &list)
		}
		return err
	})
	return list
}

// deleteSeveral deletes pods and checks that their node has nothing of them.
func (c *cluster) deleteSeveral(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		c.mustKubectl(t, "delete", "pod", name, "--wait=true", "--timeout=60s")
	}
	for _, n := range c.hosts {
		kerneltest.Within(t, 30*time.Second, func() error {
			left := n.shell(t, "ls /var/lib/cni/fairlead/pods 2>/dev/null || true; find /var/lib/cni/networks -name '10.6*' 2>/dev/null || true")
			if left = strings.TrimSpace(left); left != "" {
				return fmt.Errorf("%s still has\n%s", n.name, left)
			}
			return nil
		})
	}
}

// podsOnNetworks checks that two pods reach each other on each of their networks, and what the annotation says.
func podsOnNetworks(t *testing.T, c *cluster) {
	n := c.hosts[0]
	one, first := c.severalPod(t, "one", `[{"name": "lan", "ips": ["10.61.0.77/24"]}, {"name": "back", "interface": "back"}, {"name": "file"}]`, n)
	two, second := c.severalPod(t, "two", "lan,back@back,default/file", n)
	for _, list := range [][]networkStatus{first, second} {
		var text []string
		for _, s := range list {
			text = append(text, s.Name+" "+s.Interface)
		}
		if got := strings.Join(text, ", "); got != "pods eth0, default/lan net1, default/back back, default/file net3" || !list[0].Default {
			t.Fatalf("network-status has %s", got)
		}
	}
	if first[0].IPs[0] != one.ip || first[1].IPs[0] != "10.61.0.77" {
		t.Errorf("network-status of %v has %v", one, first)
	}
	for i := range first {
		source := second[i].IPs[0]
		wantAnswer(t, c.inPod(two), "tcp", at(first[i].IPs[0], servePort), "one", source)
	}
	if far := c.hosts[1]; far != n { // a macvlan reaches the other node's link
		_, third := c.severalPod(t, "three", `[{"name": "lan", "ips": ["10.61.0.99/24"]}]`, far)
		wantAnswer(t, c.inPod(two), "tcp", at(third[1].IPs[0], servePort), "three", second[1].IPs[0])
		c.deleteSeveral(t, "one", "two", "three")
	}
	c.checkHealthy(t)
}

// whereaboutsNetworks checks that pods of different nodes get different addresses of a range, and reach each other.
func whereaboutsNetworks(t *testing.T, c *cluster) {
	_, first := c.severalPod(t, "one", "whereabouts-conf", c.hosts[0])
	two, second := c.severalPod(t, "two", "whereabouts-conf", c.hosts[1])
	if first[1].IPs[0] == second[1].IPs[0] || !strings.HasPrefix(first[1].IPs[0], "10.65.0.2") {
		t.Errorf("addresses %v and %v", first[1].IPs, second[1].IPs)
	}
	wantAnswer(t, c.inPod(two), "tcp", at(first[1].IPs[0], servePort), "one", second[1].IPs[0])
	c.deleteSeveral(t, "one", "two")
}

// ipvlanNetwork checks that pods of different nodes reach each other by ipvlan, and by a VLAN in which each node has one.
func ipvlanNetwork(t *testing.T, c *cluster) {
	kerneltest.Needs(t, "ipvlan", "vlan")
	for i, network := range []string{"ipvlan", "vlan"} {
		_, first := c.severalPod(t, "one", network, c.hosts[0])
		two, second := c.severalPod(t, "two", network, c.hosts[1])
		if first[1].IPs[0] == second[1].IPs[0] || !strings.HasPrefix(first[1].IPs[0], fmt.Sprintf("10.%d.", 68+i)) {
			t.Errorf("addresses %v and %v", first[1].IPs, second[1].IPs)
		}
		wantAnswer(t, c.inPod(two), "tcp", at(first[1].IPs[0], servePort), "one", second[1].IPs[0])
		c.checkHealthy(t)
		c.deleteSeveral(t, "one", "two")
	}
}

// bridgedNetwork checks that pods of different nodes reach each other through bridges of the nodes, which have a link
// to each other.
func bridgedNetwork(t *testing.T, c *cluster) {
	c.wire.ip(t, "link add br1 type bridge", "link set br1 up")
	for i, n := range c.hosts {
		port := fmt.Sprint("lan", i)
		c.wire.ip(t, "link add "+port+" type veth peer name up1 netns "+n.netns(), "link set "+port+" master br1 up")
		n.shell(t, "ip link add lan0 type bridge; ip link set lan0 up; ip link set up1 master lan0 up")
		t.Cleanup(func() { n.shell(t, "ip link del up1; ip link del lan0") })
	}
	_, first := c.severalPod(t, "one", "bridged", c.hosts[0])
	two, second := c.severalPod(t, "two", "bridged", c.hosts[1])
	if first[1].IPs[0] == second[1].IPs[0] {
		t.Errorf("two pods have %s", first[1].IPs[0])
	}
	wantAnswer(t, c.inPod(two), "tcp", at(first[1].IPs[0], servePort), "one", second[1].IPs[0])
	c.deleteSeveral(t, "one", "two")
}

// isolatedNetworks checks that pods of different nodes reach each other on their isolated network, also while they are
// on the default network, and that another network with the same addresses is separate.
func isolatedNetworks(t *testing.T, c *cluster) {
	one, first := c.severalPod(t, "one", "blue", c.hosts[0])
	two, second := c.severalPod(t, "two", "blue@blue0", c.hosts[1])
	other, third := c.severalPod(t, "three", "red", c.hosts[1])
	if second[1].Interface != "blue0" || first[1].IPs[0] == second[1].IPs[0] {
		t.Errorf("network-status has %+v and %+v", first, second)
	}
	wantAnswer(t, c.inPod(two), "tcp", at(first[1].IPs[0], servePort), "one", second[1].IPs[0])
	wantAnswer(t, c.inPod(one), "udp", at(second[1].IPs[0], servePort), "two", first[1].IPs[0])
	wantAnswer(t, c.inPod(two), "tcp", at(one.ip, servePort), "one", two.ip)
	if out, err := c.inPod(other)("query", "tcp", at(first[1].IPs[0], servePort)); err == nil && third[1].IPs[0] != first[1].IPs[0] {
		t.Errorf("a pod of network red reaches one of network blue: %s", out)
	}
	c.checkHealthy(t)
	c.deleteSeveral(t, "one", "two", "three")
	for _, name := range []string{"blue", "red"} {
		for _, b := range c.ipBlocks(t) {
			if b.network == name {
				c.mustStore(t, "ipam", "release", b.cidr, "--network="+name)
			}
		}
		kerneltest.Within(t, 30*time.Second, func() error {
			_, err := c.store("network", "delete", name)
			return err
		})
	}
	if left := c.storeKeys(t); slices.ContainsFunc(left, func(k string) bool { return strings.Contains(k, "vni.") }) {
		t.Errorf("a VNI is left: %v", left)
	}
	for _, n := range c.hosts {
		kerneltest.Within(t, 30*time.Second, func() error {
			if left := n.shell(t, "ls /run/netns; ip -o link show type vxlan"); strings.Contains(left, "fairlead-") {
				return fmt.Errorf("%s still has\n%s", n.name, left)
			}
			return nil
		})
	}
}

// laterDefinition checks the event of a pod whose definition does not exist, and that the pod starts once it does.
func laterDefinition(t *testing.T, c *cluster) {
	c.startSeveral(t, "early", "later", c.hosts[0])
	kerneltest.Within(t, time.Minute, func() error {
		events, err := c.kubectl("get", "events", "--field-selector=involvedObject.name=early", "-o", "jsonpath={.items[*].message}")
		if want := "NetworkAttachmentDefinition default/later: it does not exist in the Kubernetes API: create it"; err == nil && !strings.Contains(events, want) {
			err = fmt.Errorf("no event has %q: %s", want, events)
		}
		return err
	})
	c.control.write(t, "/run/later.yaml", `{"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": "later", "namespace": "default"},
		"spec": {"config": "{\"cniVersion\": \"1.0.0\", \"type\": \"bridge\", \"bridge\": \"later0\", \"ipam\": {\"type\": \"host-local\", \"subnet\": \"10.64.0.0/24\"}}"}}`)
	c.mustKubectl(t, "apply", "-f", "/run/later.yaml")
	if _, list := c.waitForSeveral(t, "early"); len(list) != 2 || list[1].Name != "default/later" {
		t.Errorf("network-status has %+v", list)
	}
	c.deleteSeveral(t, "early")
}

// networksWithoutAgents starts and deletes pods while no agent runs. With network policy, a pod waits for the agent.
// The annotation comes with the agents.
func networksWithoutAgents(t *testing.T, c *cluster) {
	n := c.hosts[0]
	t.Cleanup(func() { c.setPodNetworks(t, true) })
	c.severalPod(t, "before", "lan,back", n)
	c.deleteAgents(t)
	c.deleteSeveral(t, "before")
	c.startSeveral(t, "meanwhile", "lan,back", n)
	c.waitForRefusal(t)
	c.applyAgents(t)
	c.waitForSeveral(t, "meanwhile")

	values := podNetworkValues(true)
	values["policy"] = map[string]any{"enabled": false}
	c.renderAgents(t, values)
	c.applyAgents(t)
	c.deleteAgents(t)
	c.deleteSeveral(t, "meanwhile")
	c.startSeveral(t, "without", "lan,back", n)
	c.mustKubectl(t, "wait", "--for=condition=Ready", "pod/without", "--timeout=90s")
	c.startSeveral(t, "short", "lan", n)
	c.mustKubectl(t, "wait", "--for=condition=Ready", "pod/short", "--timeout=90s")
	c.mustKubectl(t, "delete", "pod", "short", "--wait=true", "--timeout=60s")
	c.applyAgents(t)
	if list := c.networkStatus(t, "without"); len(list) != 3 {
		t.Errorf("network-status has %+v", list)
	}
	c.deleteSeveral(t, "without")
}

// networksAfterKill kills containerd and the kubelet while a pod starts. Afterwards the pod starts, and leaves nothing.
func networksAfterKill(t *testing.T, c *cluster) {
	n := c.hosts[0]
	for i := range 3 {
		name := fmt.Sprint("killed", i)
		c.startSeveral(t, name, "lan,back,file", n)
		time.Sleep(time.Duration(100+150*i) * time.Millisecond)
		if out, err := n.run("kill", "-9", n.kubelet, n.containerd); err != nil {
			t.Fatal(err, out)
		}
		time.Sleep(time.Second)
		n.startContainerd(t)
		n.startKubelet(t)
		if _, list := c.waitForSeveral(t, name); len(list) != 4 {
			t.Errorf("network-status has %+v", list)
		}
		c.deleteSeveral(t, name)
		n.killOrphans(t)
	}
	c.checkHealthy(t)
}
