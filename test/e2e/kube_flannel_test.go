package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/kubetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/test/flanneld"
)

// flannelVariable enables the switch of a cluster from flannel and back. Its value is the name of one of flannelKinds, or
// "all".
const flannelVariable = "FAIRLEAD_E2E_FLANNEL"

// flannelKinds returns the clusters that are switched. With IPv6, the plugin flannel is our own, which delegates to the
// reference plugins, because the one of another project that the module proxy has knows IPv4 only.
func flannelKinds() []flannelKind {
	return []flannelKind{
		{"vxlan", "vxlan", ipv4, "flannel.1"},
		{"vxlan, dual stack", "vxlan", dualStack, "flannel-v6.1"},
		{"host-gw, dual stack", "host-gw", dualStack, ""},
	}
}

// flannelKind is a kind of cluster with flannel.
type flannelKind struct {
	name    string
	backend string
	family  family
	link    string // of the tunnel
}

// TestSwitchFromFlannel switches a cluster of three nodes from flannel to Fairlead node by node, back, and again for good,
// while pods of all nodes exchange packets.
func TestSwitchFromFlannel(t *testing.T) {
	selector := kerneltest.OptIn(t, flannelVariable) // it builds Kubernetes and flanneld
	p := build(t)
	copyRelease(t, p)
	var rows []flannelRow
	for _, k := range flannelKinds() {
		if selector != "all" && selector != k.name {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			c := &flannelCluster{flannelKind: k, cluster: &cluster{
				programs: p, bin: kubernetesPrograms(t, kubetest.Version), reference: referencePlugins(t), runtime: containerd23(t, p), wire: newWire(t),
				clusterKind: clusterKind{version: kubetest.Version, nodes: 3, mode: "nftables", network: kubernetesAgent, family: k.family},
			}}
			c.start(t)
			start := time.Now()
			row := c.switchAndBack(t)
			if row.Took = time.Since(start); !t.Failed() {
				rows = append(rows, row)
			}
		})
	}
	if os.Getenv("UPDATE") != "" {
		same := func(a, b flannelRow) bool { return a.Cluster == b.Cluster }
		all := recordRows(t, flannelFile, rows, same, func(a, b flannelRow) int { return strings.Compare(a.Cluster, b.Cluster) })
		rewritePage(t, flannelPage, "results", flannelText(all))
	}
}

// flannelRow is the result in one cluster.
type flannelRow struct {
	Cluster, Version string

	Streams, Packets, Lost int
	Requests               string
	Took                   time.Duration
}

const (
	flannelFile = "testdata/kubernetes/flannel.json"
	flannelPage = "../../docs/flannel.md"
)

// flannelText returns the page's section about the results.
func flannelText(rows []flannelRow) string {
	var b strings.Builder
	b.WriteString("| flannel's backend | Kubernetes | streams | packets | lost | TCP requests | time |\n|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %s | %v |\n", r.Cluster, r.Version, r.Streams, r.Packets, r.Lost, r.Requests, r.Took.Round(time.Second))
	}
	return b.String()
}

// TestFlannelPage checks that the page shows the recorded results, and that no packet was lost in any cluster.
func TestFlannelPage(t *testing.T) {
	t.Parallel()
	rows := readRows[flannelRow](t, flannelFile)
	if _, text, _ := pageParts(t, flannelPage, "results"); text != flannelText(rows) {
		t.Errorf("the page has\n%s\nthe results are\n%s", text, flannelText(rows))
	}
	for _, k := range flannelKinds() {
		i := slices.IndexFunc(rows, func(r flannelRow) bool { return r.Cluster == k.name })
		if i < 0 || rows[i].Lost != 0 || rows[i].Packets < 10000 || !strings.HasSuffix(rows[i].Requests, ", 0 failed") {
			t.Errorf("%s: a packet was lost, or it was not run (make e2e-flannel writes the page)", k.name)
		}
	}
}

// flannelCluster is a cluster whose pod network is flannel.
type flannelCluster struct {
	*cluster
	flannelKind
}

// start starts three nodes with the reference plugins and flannel's own manifest.
func (c *flannelCluster) start(t *testing.T) {
	t.Helper()
	c.startControl(t)
	for i := range c.nodes {
		n := c.newNode(t, i+1)
		n.shell(t, "rm -rf /opt/cni/bin; mkdir /opt/cni/bin; cd /mnt/reference; cp bridge host-local portmap bandwidth firewall loopback /opt/cni/bin/\n"+
			"[ ! -e /proc/sys/net/bridge/bridge-nf-call-ip6tables ] || sysctl -qw net.bridge.bridge-nf-call-ip6tables=1\n"+
			"sysctl -qw net.ipv6.conf.all.forwarding=1")
		c.hosts = append(c.hosts, n)
		c.loadAgentImage(t, n)
	}
	for _, i := range c.flannelImages(t) {
		c.load(t, i)
	}
	c.control.write(t, "/run/flannel.yaml", c.flannelManifest(t))
	c.mustKubectl(t, "apply", "-f", "/run/flannel.yaml")
	c.mustKubectl(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=120s")
	for _, p := range []string{podRange, podRange6} {
		via := c.hosts[0].ip
		if strings.Contains(p, ":") {
			via = sixOf(via)
		}
		c.wire.ip(t, "route replace "+p+" via "+via)
	}
	c.routeControl(t)
}

// flannelManifest returns flannel's own manifest with the cluster's network.
func (c *flannelCluster) flannelManifest(t *testing.T) string {
	t.Helper()
	text, err := flanneld.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	six := ""
	if c.cluster.family == dualStack {
		six = `"EnableIPv6": true, "IPv6Network": "` + podRange6 + `",`
	}
	for from, to := range map[string]string{
		`"Network": "10.244.0.0/16",`: `"Network": "` + podRange + `", ` + six, `"EnableNFTables": false`: `"EnableNFTables": true`, `"Type": "vxlan"`: `"Type": "` + c.backend + `"`,
	} {
		if strings.Count(text, from) != 1 {
			t.Fatalf("flannel's manifest does not contain %s exactly once", from)
		}
		text = strings.Replace(text, from, to, 1)
	}
	return text
}

// flannelImages returns the images of flannel's manifest. The programs are built from source; their tools are Debian's.
func (c *flannelCluster) flannelImages(t *testing.T) []image {
	t.Helper()
	daemon := image{names: []string{"ghcr.io/flannel-io/flannel:" + flanneld.Version}, entrypoint: []string{"/opt/bin/flanneld"}, files: map[string][]byte{}, links: map[string]string{}}
	plugin := image{names: []string{"ghcr.io/flannel-io/flannel-cni-plugin:v1.9.1-flannel3"}, files: map[string][]byte{}}
	add := func(i image, as string, path string, err error) {
		t.Helper()
		var raw []byte
		if err == nil {
			raw, err = os.ReadFile(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		i.files[strings.TrimPrefix(as, "/")] = raw
	}
	tool := func(i image, name, as string) {
		t.Helper()
		path, err := exec.LookPath(name)
		add(i, as, path, err)
		for _, l := range neededLibraries(t, path) {
			add(i, l, l, nil)
		}
	}
	path, err := flanneld.Program()
	add(daemon, "opt/bin/flanneld", path, err)
	path, err = flanneld.InstallConf()
	add(daemon, "opt/bin/install-conf", path, err)
	tool(daemon, "nft", "usr/sbin/nft")
	tool(daemon, "xtables-nft-multi", "usr/sbin/xtables-nft-multi")
	for _, name := range []string{"iptables", "ip6tables", "iptables-save", "ip6tables-save", "iptables-restore", "ip6tables-restore"} {
		daemon.links["usr/sbin/"+name] = "xtables-nft-multi"
	}
	path, err = flanneld.Plugin()
	if c.cluster.family == dualStack {
		path = filepath.Join(c.plugin, "fairlead-cni")
	}
	add(plugin, "flannel", path, err)
	tool(plugin, "cp", "bin/cp")
	return []image{daemon, plugin}
}

// fairlead runs the command on the control host, with the cluster's kubeconfig.
func (c *flannelCluster) fairlead(t *testing.T, argv ...string) string {
	t.Helper()
	argv = append([]string{"/mnt/e2e/fairlead", "kubernetes"}, argv...)
	full := c.control.nsenter(append(argv, "--kubeconfig="+kubeConfig)...)
	out, err := exec.CommandContext(t.Context(), full[0], full[1:]...).CombinedOutput() // it has a time limit of its own for each node
	if err != nil {
		seen, _ := c.kubectl("get", "pods,nodes", "-A", "-o", "wide")
		t.Fatalf("%v: %s\n%s", err, out, seen)
	}
	t.Logf("%s:\n%s", strings.Join(argv[1:], " "), out)
	return string(out)
}

// switchAndBack switches node by node, goes back, and switches again for good.
func (c *flannelCluster) switchAndBack(t *testing.T) (row flannelRow) {
	row = flannelRow{Cluster: c.name, Version: c.version}
	old := c.startWeb(t, lingerSeconds)
	macs := c.tunnels(t)
	row.Requests = c.underLoad(t, old, func() {
		end := c.streams(t, old)
		if out := c.fairlead(t, "install", "--from", "flannel", "--dry-run"); !strings.Contains(out, "would switch from flannel to Fairlead: n1, n2, n3") {
			t.Errorf("the dry run printed\n%s", out)
		}
		c.wantNodes(t, "flannel", "flannel", "flannel")

		c.fairlead(t, "install", "--from", "flannel", "--node", "n2", "--no-check")
		c.wantNodes(t, "flannel", "mixed", "flannel")
		mixed := c.startEach(t, "mixed")
		c.wantAllReach(t, old, mixed)
		c.fairlead(t, "uninstall", "--node", "n2")
		c.wantNodes(t, "flannel", "flannel", "flannel")
		c.wantAllReach(t, old, mixed)

		c.fairlead(t, "install", "--from", "flannel")
		c.wantNodes(t, "fairlead", "fairlead", "fairlead")
		switched := c.startEach(t, "switched")
		c.wantAllReach(t, old, mixed, switched)
		c.deleteEach(t, "mixed")
		c.checkHealthy(t)

		c.fairlead(t, "uninstall")
		c.wantNodes(t, "flannel", "flannel", "flannel")
		back := c.startEach(t, "back")
		c.wantAllReach(t, old, switched, back)
		c.deleteEach(t, "switched")

		c.fairlead(t, "install", "--from", "flannel", "--no-check")
		c.mustKubectl(t, "-n", "kube-flannel", "delete", "daemonset", "kube-flannel-ds")
		c.fairlead(t, "install")
		c.wantNodes(t, "fairlead", "fairlead", "fairlead")
		for _, n := range c.hosts {
			if labels := c.mustKubectl(t, "get", "node", n.name, "-o", "jsonpath={.metadata.labels}"); strings.Contains(labels, "fairlead.io") {
				t.Errorf("%s still has the label of the switch: %s", n.name, labels)
			}
		}
		row.Streams, row.Packets, row.Lost = end()
		c.wantAllReach(t, old, back)
		c.deleteEach(t, "back")
	})
	if now := c.tunnels(t); now != macs {
		t.Errorf("the tunnels were\n%sand are\n%s", macs, now)
	}
	for _, p := range c.pods(t, "web") {
		if !slices.ContainsFunc(old, func(o kubePod) bool { return o.name == p.name && slices.Equal(o.ips, p.ips) }) {
			t.Errorf("%+v is not one of the pods before the switch: %+v", p, old)
		}
	}
	c.delete(t, "web.yaml")
	c.wantNoPodsLeft(t)
	return row
}

// tunnels returns the hardware addresses and indices of the nodes' tunnels.
func (c *flannelCluster) tunnels(t *testing.T) (text string) {
	t.Helper()
	if c.link == "" {
		return ""
	}
	for _, n := range c.hosts {
		text += n.name + " " + n.shell(t, "for l in $(ip -o link show type vxlan | cut -d: -f2); do echo $l $(cat /sys/class/net/$l/address /sys/class/net/$l/ifindex); done")
	}
	if !strings.Contains(text, c.link) {
		t.Fatalf("no node has the link %s:\n%s", c.link, text)
	}
	return text
}

// wantNodes checks what runs on each node, and that a Node has flannel's annotations exactly if flannel needs them.
func (c *flannelCluster) wantNodes(t *testing.T, kinds ...string) {
	t.Helper()
	for i, n := range c.hosts {
		kerneltest.Within(t, 30*time.Second, func() error {
			pods, err := c.kubectl("get", "pods", "-A", "--field-selector=spec.nodeName="+n.name, "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
			if err != nil {
				return err
			}
			annotations, err := c.kubectl("get", "node", n.name, "-o", "jsonpath={.metadata.annotations}")
			if err != nil {
				return err
			}
			is := map[string]bool{
				"flannel's pod": strings.Contains(pods, "kube-flannel-ds-"), "the agent": strings.Contains(pods, "fairlead-"),
				"flannel's annotations": strings.Contains(annotations, "flannel.alpha.coreos.com/"), "the agent's annotation": strings.Contains(annotations, "fairlead.io/node"),
			}
			flannel := kinds[i] == "flannel"
			want := map[string]bool{"flannel's pod": flannel, "the agent": !flannel, "flannel's annotations": kinds[i] != "fairlead", "the agent's annotation": !flannel}
			for what, has := range is {
				if has != want[what] {
					err = errors.Join(err, fmt.Errorf("%s, %s: %s: %v", n.name, kinds[i], what, has))
				}
			}
			if strings.Contains(pods, " False") {
				err = errors.Join(err, fmt.Errorf("%s: a pod is not ready:\n%s", n.name, pods))
			}
			if err != nil {
				err = fmt.Errorf("%w\n%s\n%s", err, pods, annotations)
			}
			return err
		})
	}
}

// startEach starts a pod on each node.
func (c *flannelCluster) startEach(t *testing.T, app string) []kubePod {
	t.Helper()
	c.control.write(t, "/run/"+app+".yaml", fill(t, "each.yaml", map[string]string{"APP": app, "IMAGE": imageName}))
	c.mustKubectl(t, "apply", "-f", "/run/"+app+".yaml")
	c.mustKubectl(t, "rollout", "status", "daemonset/"+app, "--timeout=110s")
	return c.pods(t, app)
}

func (c *flannelCluster) deleteEach(t *testing.T, app string) {
	t.Helper()
	pods := c.pods(t, app)
	c.mustKubectl(t, "delete", "-f", "/run/"+app+".yaml", "--wait=true", "--cascade=foreground")
	for _, p := range pods {
		n := c.node(t, p.node)
		for _, ip := range p.ips {
			kerneltest.Within(t, 30*time.Second, func() error {
				if left := n.shell(t, "ls /var/lib/cni/networks/cbr0 | grep -Fx '"+ip+"' || true"); left != "" {
					return fmt.Errorf("%s of the deleted pod %s is still reserved on %s", ip, p.name, p.node)
				}
				return nil
			})
		}
	}
}

// wantAllReach checks that pods have different addresses of their nodes' ranges, and reach those of the other nodes.
func (c *flannelCluster) wantAllReach(t *testing.T, groups ...[]kubePod) {
	t.Helper()
	all := slices.Concat(groups...)
	differentAddresses(t, all)
	ranges := map[string]string{}
	for _, n := range c.hosts {
		ranges[n.name] = c.mustKubectl(t, "get", "node", n.name, "-o", "jsonpath={.spec.podCIDRs[*]}")
	}
	for _, to := range all {
		for _, ip := range to.ips {
			if !slices.ContainsFunc(strings.Fields(ranges[to.node]), func(r string) bool { return netip.MustParsePrefix(r).Contains(netip.MustParseAddr(ip)) }) {
				t.Errorf("%s on %s has %s, outside of %s", to.name, to.node, ip, ranges[to.node])
			}
			for _, g := range groups {
				i := slices.IndexFunc(g, func(p kubePod) bool { return p.node != to.node })
				wantAnswer(t, c.inPod(g[i]), "tcp", at(ip, servePort), to.name, "")
			}
			wantAnswer(t, c.node(t, to.node).onNode, "tcp", at(ip, servePort), to.name, "")
		}
	}
}

// streams sends packets between pods of different nodes, for each family, and from a pod to a Service. end checks that
// each packet was answered. Packets dropped at full socket buffers do not count as lost: there a program waited for a
// processor.
func (c *flannelCluster) streams(t *testing.T, pods []kubePod) (end func() (streams, packets, lost int)) {
	t.Helper()
	var ends []func() (int, int, string)
	for i := 0; i < len(pods); i += 2 { // two pods of each node
		for _, ip := range pods[(i+3)%len(pods)].ips {
			ends = append(ends, c.streamFrom(t, pods[i], at(ip, servePort)))
		}
	}
	ends = append(ends, c.streamFrom(t, pods[0], at(c.serviceIP(t), webPort)))
	before := c.drops(t, pods)
	return func() (_, packets, lost int) {
		seen := ""
		for _, end := range ends {
			n, without, text := end()
			packets += n
			lost += without
			seen += text
		}
		dropped := c.drops(t, pods) - before
		if lost -= min(lost, dropped); lost > 0 || packets < 1000*len(ends) {
			t.Errorf("%d of %d packets were lost, besides %d at full socket buffers; the first ones and their times:\n%s", lost, packets, dropped, seen)
			events, err := c.kubectl("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp")
			t.Logf("the cluster's events, for example a node or a pod that was not ready, so that a Service had no endpoints: %s, %v", events, err)
		} else if dropped > 0 {
			t.Logf("%d packets were dropped at full socket buffers", dropped)
		}
		return len(ends), packets, lost
	}
}

// drops returns the number of packets that were dropped at full socket buffers of pods.
func (c *flannelCluster) drops(t *testing.T, pods []kubePod) (all int) {
	t.Helper()
	for _, p := range pods {
		n, err := parseInt(run("nsenter", "--net="+c.netnsOf(t, p), "--", c.programs.probe, "drops"))
		if err != nil {
			t.Error(err)
		}
		all += n
	}
	return all
}

// streamInterval is the time between two packets of a stream.
const streamInterval = "10ms"

// streamFrom starts a stream in a pod's network namespace. end returns the number of packets sent, that of packets without
// an answer, and when the first ones of these were sent.
func (c *flannelCluster) streamFrom(t *testing.T, from kubePod, addr string) (end func() (sent, lost int, text string)) {
	t.Helper()
	what := fmt.Sprintf("%s on %s to %s", from.name, from.node, addr)
	stop := startStream(t, what, "nsenter", "--net="+c.netnsOf(t, from), "--", c.programs.probe, "stream", addr, streamInterval)
	return func() (sent, lost int, text string) {
		sent, lost, rest := stop()
		if lost > 0 {
			text = what + ":\n" + rest[:min(len(rest), 2000)]
		}
		return sent, lost, text
	}
}

// netnsOf returns the machine's path of a pod's network namespace.
func (c *flannelCluster) netnsOf(t *testing.T, p kubePod) string {
	t.Helper()
	n := c.node(t, p.node)
	name := strings.TrimSpace(n.shell(t, "for f in /run/netns/*; do ! nsenter --net=$f ip -o address show | grep -F ' "+p.ip+"/' >/dev/null || basename $f; done"))
	if name == "" {
		t.Fatalf("%s has no network namespace with %s", p.node, p.ip)
	}
	return n.path("/run/netns/" + name)
}

// wantNoPodsLeft checks that the nodes have nothing of deleted pods.
func (c *flannelCluster) wantNoPodsLeft(t *testing.T) {
	t.Helper()
	for _, n := range c.hosts {
		kerneltest.Within(t, time.Minute, func() error {
			left := n.shell(t, "ls /run/netns /var/lib/cni/flannel; ls /var/lib/cni/networks/cbr0 | grep -v -e last_reserved -e lock || true; ls /var/lib/cni/results | grep cbr0 || true; ip -o link show master cni0 | cut -d: -f2")
			if left = strings.TrimSpace(left); left != "/run/netns:\n\n/var/lib/cni/flannel:" && left != "/var/lib/cni/flannel:\n\n/run/netns:" {
				return fmt.Errorf("%s still has\n%s", n.name, left)
			}
			return nil
		})
		var list []json.RawMessage
		if raw, err := n.run("/mnt/e2e/fairlead", "list", "--json"); err != nil || json.Unmarshal([]byte(raw), &list) != nil || len(list) > 0 {
			t.Errorf("fairlead list on %s: %v: %s", n.name, err, raw)
		}
	}
	c.checkHealthy(t)
}
