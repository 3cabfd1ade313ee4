package e2e

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/kubetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/test/flanneld"
)

// scaleVariable enables the comparison with flanneld in clusters of many simulated nodes. Its value lists their sizes, in
// nodes ("1000") or in nodes and pods ("5000+100000").
const scaleVariable = "FAIRLEAD_KUBERNETES_SCALE"

// scaleRest is the time for which the requests of an agent at rest are counted.
const scaleRest = time.Minute

// scaleStart is the time after which an agent is at rest.
const scaleStart = 20 * time.Second

// serverStarts is the number of starts of which the API server's processor time is measured, and serverStart the time after
// which each ends.
const (
	serverStarts = 10
	serverStart  = 5 * time.Second
)

// scaleRow has the measurements of one program in a cluster of one size.
type scaleRow struct {
	Side string
	Size string // as in scaleVariable

	Joined    time.Duration // from the program's start until the last route
	Memory    int           // resident, in kB
	Processor time.Duration // until it was at rest
	Start     int           // requests until it was at rest
	Requests  int           // requests while it rests
	Restart   int           // requests while it ends, starts again and comes to rest
	Watches   int           // open watches

	Server      []time.Duration // processor time of the API server in serverStart of each start, above that in the same time before
	FirstPacket []time.Duration // from a Node's creation, when its host starts the program, until a packet to the host and back
}

// TestKubernetesScale runs our agent and flanneld in turn on one host, next to thousands of simulated nodes.
func TestKubernetesScale(t *testing.T) {
	sizes := kerneltest.OptIn(t, scaleVariable)
	p := build(t)
	flannel, err := flanneld.Program()
	if err != nil {
		t.Fatal(err)
	}
	if err := copyFile(flannel, filepath.Join(p.dir, "flanneld")); err != nil {
		t.Fatal(err)
	}
	var rows []scaleRow
	for size := range strings.FieldsSeq(sizes) {
		t.Run(size, func(t *testing.T) { rows = append(rows, scaleOf(t, p, size)...) })
	}
	for _, r := range rows {
		t.Logf("%-9s %11s: joined after %v, %d kB, processor %v, %d requests at the start, %d in %v at rest, %d at a restart, %d watches; a new node's first packet after %v (%v to %v); the API server's processor time at a start %v",
			r.Side, r.Size, r.Joined.Round(10*time.Millisecond), r.Memory, r.Processor, r.Start, r.Requests, scaleRest, r.Restart, r.Watches, r.FirstPacket[len(r.FirstPacket)/2], r.FirstPacket[0], r.FirstPacket[len(r.FirstPacket)-1], r.Server)
	}
}

const auditPolicy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}`

func scaleOf(t *testing.T, p programs, size string) (rows []scaleRow) {
	first, second, _ := strings.Cut(size, "+")
	nodes, err := strconv.Atoi(first)
	pods, err2 := strconv.Atoi(cmp.Or(second, "0"))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	c := &cluster{programs: p, bin: kubernetesPrograms(t, kubetest.Version), clusterKind: clusterKind{version: kubetest.Version, mode: "scale"}, wire: newWire(t)}
	c.apiFlags = []string{"--audit-policy-file=/etc/kubernetes/audit.json", "--audit-log-path=/run/audit.log", "--disable-admission-plugins=ServiceAccount"}
	c.startStore(t)
	raw, err := os.ReadFile("../../contrib/kubernetes/chart/templates/crds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c.control.write(t, "/run/crds.yaml", string(raw))
	c.mustKubectl(t, "apply", "-f", "/run/crds.yaml")
	c.mustKubectl(t, "create", "namespace", "fairlead-system")
	c.create(t, "/api/v1/nodes", nodes, scaleNode)
	c.create(t, podsPath, pods, func(i int) object { return scalePod(i, nodes) })
	n, joining := c.kubeHost(t, "n0", "198.51.100.11", map[string]string{}), c.kubeHost(t, "joining", "198.51.100.12", map[string]string{})
	for _, h := range []*host{n, joining} {
		h.shell(t, "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.neigh.default.gc_thresh3=100000 net.ipv4.neigh.default.gc_thresh2=100000 || true; mkdir -p /run/xtables")
	}
	for _, side := range []string{"flanneld", "fairlead"} {
		rows = append(rows, c.measureSide(t, n, joining, side, size, nodes))
	}
	for range serverStarts {
		for i := range rows {
			rows[i].Server = append(rows[i].Server, c.serverAtStart(t, n, rows[i].Side, nodes))
		}
	}
	for _, r := range rows {
		slices.Sort(r.Server)
	}
	return rows
}

// serverAtStart returns the processor time of the API server while a program starts, above that while nothing does.
func (c *cluster) serverAtStart(t *testing.T, n *host, side string, nodes int) time.Duration {
	t.Helper()
	idle := c.serverTime(t)
	time.Sleep(serverStart)
	began, busy := time.Now(), c.serverTime(t)
	pid := c.startSide(t, n, side, 0)
	waitForRoutes(t, n, nodes)
	time.Sleep(serverStart - time.Since(began))
	took := c.serverTime(t) - busy - (busy - idle)
	stopSide(t, n, pid)
	removeTunnels(t, n)
	return took
}

// waitForRoutes waits until a host has the routes to all other nodes.
func waitForRoutes(t *testing.T, n *host, nodes int) {
	t.Helper()
	kerneltest.Within(t, 5*time.Minute, func() error {
		if routes := strings.Count(n.shell(t, "ip route show"), "10."); routes < nodes-1 {
			return fmt.Errorf("%d routes to %d other nodes", routes, nodes-1)
		}
		return nil
	})
}

// create creates objects by the API.
func (c *cluster) create(t *testing.T, path string, count int, objectOf func(i int) object) {
	t.Helper()
	api := c.newAPI(t)
	work := make(chan int)
	var wait sync.WaitGroup
	var mu sync.Mutex
	var problem error
	for range 16 {
		wait.Go(func() {
			for i := range work {
				if err := api.create(t.Context(), path, objectOf(i)); err != nil {
					mu.Lock()
					problem = err
					mu.Unlock()
				}
			}
		})
	}
	for i := range count {
		work <- i
	}
	close(work)
	wait.Wait()
	if problem != nil {
		t.Fatal(problem)
	}
}

// scaleNode returns a Node as flanneld and our agent publish it. Node 0 is the measured host.
func scaleNode(i int) object {
	node := newNode(i)
	if i > 0 {
		ip, mac := fmt.Sprintf("172.16.%d.%d", i>>8, i&255), fmt.Sprintf("02:00:00:00:%02x:%02x", i>>8, i&255)
		node["metadata"].(object)["annotations"] = object{
			"fairlead.io/node":                             fmt.Sprintf(`{"id":"m%d","addresses":["%s/12"],"version":"0.1.0"}`, i, ip),
			"flannel.alpha.coreos.com/backend-type":        "vxlan",
			"flannel.alpha.coreos.com/backend-data":        fmt.Sprintf(`{"VNI":1,"VtepMAC":"%s"}`, mac),
			"flannel.alpha.coreos.com/public-ip":           ip,
			"flannel.alpha.coreos.com/kube-subnet-manager": "true",
		}
	}
	return node
}

// newNode returns a Node that nobody has published yet.
func newNode(i int) object {
	cidr := scaleCIDR(i)
	return object{"apiVersion": "v1", "kind": "Node", "metadata": object{"name": fmt.Sprintf("n%d", i), "annotations": object{"node.alpha.kubernetes.io/ttl": "0"}}, "spec": object{"podCIDR": cidr, "podCIDRs": []string{cidr}}}
}

func scaleCIDR(i int) string { return fmt.Sprintf("10.%d.%d.0/24", 64+i>>8, i&255) }

// scalePod returns a pod on one of the other nodes, or on the measured host.
func scalePod(i, nodes int) object {
	return object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": fmt.Sprintf("p%d", i), "labels": object{"app": fmt.Sprintf("app-%d", i%1000)}},
		"spec": object{"nodeName": fmt.Sprintf("n%d", i%nodes), "containers": []object{{"name": "serve", "image": imageName}}}}
}

// measureSide runs one program on the host until it rests, for a while more, and while other nodes join.
func (c *cluster) measureSide(t *testing.T, n, joining *host, side, size string, nodes int) scaleRow {
	t.Helper()
	row := scaleRow{Side: side, Size: size}
	before := c.requests(t, side)
	began := time.Now()
	pid := c.startSide(t, n, side, 0)
	waitForRoutes(t, n, nodes)
	row.Joined = time.Since(began)
	time.Sleep(scaleStart - time.Since(began))
	row.Memory, row.Processor = n.usage(t, pid)
	started := c.requests(t, side)
	row.Start = started.all - before.all
	row.Watches = started.watches - before.watches
	time.Sleep(scaleRest)
	rested := c.requests(t, side)
	row.Requests = rested.all - started.all
	stopSide(t, n, pid)
	pid = c.startSide(t, n, side, 0)
	time.Sleep(scaleStart)
	row.Restart = c.requests(t, side).all - rested.all
	row.FirstPacket = c.firstPackets(t, n, joining, side, nodes)
	stopSide(t, n, pid)
	removeTunnels(t, n)
	return row
}

// startSide starts one program on the host of a node.
func (c *cluster) startSide(t *testing.T, n *host, side string, node int) (pid string) {
	t.Helper()
	name := fmt.Sprintf("n%d", node)
	if side == "flanneld" {
		n.write(t, "/etc/kube-flannel/net-conf.json", `{"Network": "10.64.0.0/10", "Backend": {"Type": "vxlan"}}`)
		return c.daemon(t, n, "env", "NODE_NAME="+name, "/mnt/e2e/flanneld", "--kube-subnet-mgr", "--kubeconfig-file="+kubeConfig, "--iface=up0", "--net-config-path=/etc/kube-flannel/net-conf.json")
	}
	n.write(t, "/etc/fairlead/agent.yaml", "node: "+name+"\nstore: {kubernetes: {kubeconfig: "+kubeConfig+"}}\nnetwork: {subnets: [{cidr: 10.64.0.0/10, assign: podCIDR}], backends: [{type: vxlan}]}\n")
	return c.daemon(t, n, "/mnt/e2e/fairlead", "agent")
}

// stopSide ends a program. A flanneld that still handles thousands of nodes does not end by itself.
func stopSide(t *testing.T, n *host, pid string) {
	t.Helper()
	n.shell(t, "kill "+pid+"; for i in {1..100}; do kill -0 "+pid+" 2>/dev/null || exit 0; sleep 0.1; done; kill -9 "+pid)
}

func removeTunnels(t *testing.T, n *host) {
	t.Helper()
	n.shell(t, "ip link show type vxlan | grep -o '^[0-9]*: [^:]*' | cut -d' ' -f2 | xargs -r -n1 ip link del; ip route flush proto 103 || true")
}

// auditCount counts requests in the API server's audit log.
type auditCount struct{ all, watches int }

// requests counts the requests of a program so far.
func (c *cluster) requests(t *testing.T, side string) (n auditCount) {
	t.Helper()
	f, err := os.Open(c.control.path("/run/audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var e struct{ UserAgent, Verb, Stage string }
		if json.Unmarshal(lines.Bytes(), &e) != nil || !strings.HasPrefix(e.UserAgent, side) {
			continue
		}
		switch {
		case e.Verb == "watch" && e.Stage == "ResponseStarted":
			n.watches++
			n.all++
		case e.Verb != "watch" && e.Stage == "ResponseComplete":
			n.all++
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// usage returns a process's resident memory in kB, and its processor time.
func (h *host) usage(t *testing.T, pid string) (memory int, cpu time.Duration) {
	t.Helper()
	for line := range strings.Lines(h.shell(t, "cat /proc/"+pid+"/status")) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			memory, _ = strconv.Atoi(f[1])
		}
	}
	stat := h.shell(t, "cat /proc/"+pid+"/stat")
	f := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if memory == 0 || len(f) < 13 {
		t.Fatal(errors.New("the process has ended"))
	}
	for _, s := range f[11:13] { // utime and stime: proc(5), in hundredths of a second
		n, _ := strconv.Atoi(s)
		cpu += time.Duration(n) * 10 * time.Millisecond
	}
	return memory, cpu
}

// serverTime returns the processor time of the API server so far.
func (c *cluster) serverTime(t *testing.T) time.Duration {
	t.Helper()
	_, cpu := c.control.usage(t, c.api)
	return cpu
}
