package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
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

// podStartVariable enables the comparison of pod starts. Its value is the number of rounds.
const podStartVariable = "FAIRLEAD_POD_STARTS"

const (
	startsAlone = 10  // pods of a round that start one at a time
	startsBurst = 100 // pods of a round that start at once
)

// podStarts are the times of one side.
type podStarts struct {
	side           string
	alone, burst   []float64     // from the request until the pod is ready, in ms
	network        time.Duration // sum of the time that containerd waited for the plugins
	networkCount   int
	burstNetwork   time.Duration
	burstPods      int
	slowestInBurst []float64
}

// TestKubernetesPodStart measures the start of pods on three nodes: with our agent, with flanneld and the reference plugins,
// with a plugin that does nothing, and with our agent without network policy, in turn. flannel has no network policy.
// flanneld.Plugin chooses the version of the plugin flannel. Both lists also limit bandwidth, unlike flannel's manifest.
func TestKubernetesPodStart(t *testing.T) {
	rounds, err := strconv.Atoi(kerneltest.OptIn(t, podStartVariable))
	if err != nil {
		t.Fatal(err)
	}
	p := build(t)
	copyRelease(t, p)
	for name, program := range map[string]func() (string, error){"flanneld": flanneld.Program, "flannel": flanneld.Plugin} {
		path, err := program()
		if err == nil {
			err = copyFile(path, filepath.Join(p.dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := compile(".", filepath.Join(p.dir, "emptyplugin"), "./emptyplugin"); err != nil {
		t.Fatal(err)
	}
	k := clusterKind{version: kubetest.Version, nodes: 3, mode: "nftables", network: kubernetesAgent}
	c := newKubeCluster(t, p, kubernetesPrograms(t, k.version), k)
	s := &starter{cluster: c, api: c.newAPI(t)}
	withPolicy := &podStarts{side: "fairlead"}
	withoutPolicy := &podStarts{side: "fairlead without network policy"}
	flannel := &podStarts{side: "flannel and reference plugins"}
	empty := &podStarts{side: "a plugin that does nothing"}
	for range rounds {
		s.useFairlead(t, true)
		s.measure(t, withPolicy)
		s.useFlannel(t)
		s.measure(t, flannel)
		s.useEmpty(t)
		s.measure(t, empty)
		s.useFairlead(t, false)
		s.measure(t, withoutPolicy)
	}
	sides := []*podStarts{withPolicy, withoutPolicy, flannel, empty}
	for _, s := range sides {
		t.Logf("%-32s one at a time: p50 %s, p99 %s, plugins %v of each; %d at once: p50 %s, p99 %s, last %s, plugins %v of each", s.side,
			quantile(s.alone, 50), quantile(s.alone, 99), (s.network / time.Duration(s.networkCount)).Round(100*time.Microsecond), startsBurst,
			quantile(s.burst, 50), quantile(s.burst, 99), quantile(s.slowestInBurst, 50), (s.burstNetwork / time.Duration(s.burstPods)).Round(100*time.Microsecond))
	}
}

// starter starts pods by the API.
type starter struct {
	cluster *cluster
	api     *api
	flannel []string // process IDs of flanneld by node
	count   int
}

// useFairlead starts our agents in place of another network.
func (s *starter) useFairlead(t *testing.T, policy bool) {
	t.Helper()
	s.end(t)
	s.cluster.control.shell(t, fmt.Sprintf("sed -i 's/policy: {enabled: [a-z]*}/policy: {enabled: %v}/' %s && grep -q 'policy: {enabled: %[1]v}' %[2]s", policy, agentManifest))
	s.cluster.applyAgents(t)
	s.settle(t)
}

// end ends the network of the cluster, and installs our plugins.
func (s *starter) end(t *testing.T) {
	t.Helper()
	s.cluster.agents(t, "delete", "daemonset", s.cluster.agentName(), "--cascade=foreground", "--ignore-not-found")
	for i, n := range s.cluster.hosts {
		if s.flannel != nil {
			n.shell(t, "kill "+s.flannel[i]+"; while kill -0 "+s.flannel[i]+" 2>/dev/null; do sleep 0.1; done\n"+
				"ip link del flannel.1; ip link del cni0")
		}
		n.shell(t, "ip route flush proto 103; rm -f /etc/cni/net.d/*; rm -rf /opt/cni/bin; cp -a /mnt/cni /opt/cni/bin")
	}
	s.flannel = nil
}

// useEmpty installs the plugin that does nothing. The pods have no network.
func (s *starter) useEmpty(t *testing.T) {
	t.Helper()
	s.end(t)
	for _, n := range s.cluster.hosts {
		n.shell(t, "cp /mnt/e2e/emptyplugin /opt/cni/bin/")
		n.write(t, "/etc/cni/net.d/10-empty.conflist", `{"cniVersion": "0.4.0", "name": "empty", "plugins": [{"type": "emptyplugin"}]}`)
	}
	s.warmUp(t)
}

// useFlannel starts flanneld with the reference plugins in place of another network.
func (s *starter) useFlannel(t *testing.T) {
	t.Helper()
	c := s.cluster
	s.end(t)
	for _, n := range c.hosts {
		n.shell(t, "rm -rf /opt/cni/bin; mkdir /opt/cni/bin; cp /mnt/reference/* /mnt/e2e/flannel /opt/cni/bin/")
		n.write(t, "/etc/kube-flannel/net-conf.json", `{"Network": "`+podRange+`", "Backend": {"Type": "vxlan"}}`)
		s.flannel = append(s.flannel, c.daemon(t, n.host, "env", "NODE_NAME="+n.name, "/mnt/e2e/flanneld", "--kube-subnet-mgr", "--kubeconfig-file="+kubeConfig,
			"--iface=up0", "--ip-masq", "--net-config-path=/etc/kube-flannel/net-conf.json"))
		list := object{"cniVersion": "0.4.0", "name": "cbr0", "plugins": []object{
			{"type": "flannel", "delegate": object{"hairpinMode": true, "isDefaultGateway": true}},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
			{"type": "bandwidth", "capabilities": object{"bandwidth": true}},
		}}
		raw, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		n.write(t, "/etc/cni/net.d/10-flannel.conflist", string(raw))
	}
	s.settle(t)
}

// settle waits until all nodes are ready and have routes to the others, and starts a pod on each.
func (s *starter) settle(t *testing.T) {
	t.Helper()
	for _, n := range s.cluster.hosts {
		kerneltest.Within(t, time.Minute, func() error {
			if routes := strings.Count(n.shell(t, "ip route show | grep -v 'scope link' || true"), podRange[:3]); routes < len(s.cluster.hosts)-1 {
				return fmt.Errorf("%s has %d routes to other nodes", n.name, routes)
			}
			return nil
		})
	}
	s.warmUp(t)
}

// warmUp waits until all nodes are ready, and starts pods on each.
func (s *starter) warmUp(t *testing.T) {
	t.Helper()
	time.Sleep(3 * time.Second) // until kubelet has asked containerd for its network
	s.cluster.mustKubectl(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=120s")
	s.start(t, 2*len(s.cluster.hosts), true)
	s.removeAll(t)
}

// measure starts pods one at a time and then many at once.
func (s *starter) measure(t *testing.T, side *podStarts) {
	t.Helper()
	spent, pods := s.plugins(t)
	for range startsAlone {
		side.alone = append(side.alone, s.start(t, 1, false)...)
	}
	after, count := s.plugins(t)
	side.network += after - spent
	side.networkCount += count - pods
	s.removeAll(t)
	spent, pods = s.plugins(t)
	burst := s.start(t, startsBurst, true)
	after, count = s.plugins(t)
	side.burstNetwork += after - spent
	side.burstPods += count - pods
	side.burst = append(side.burst, burst...)
	last := 0.0
	for _, ms := range burst {
		last = max(last, ms)
	}
	side.slowestInBurst = append(side.slowestInBurst, last)
	s.removeAll(t)
}

// start starts pods and returns the time from each pod's request until it is ready.
func (s *starter) start(t *testing.T, count int, atOnce bool) (times []float64) {
	t.Helper()
	var mu sync.Mutex
	begun := map[string]time.Time{}
	ready := make(chan string, count)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	seen := map[string]bool{}
	event := func(line []byte) {
		var e struct {
			Object struct {
				Metadata struct{ Name string }
				Status   struct {
					Conditions []struct{ Type, Status string }
				}
			}
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Errorf("the watch of pods: %v: %s", err, line)
		}
		name := e.Object.Metadata.Name
		isReady := func(x struct{ Type, Status string }) bool { return x.Type == "Ready" && x.Status == "True" }
		if seen[name] || !slices.ContainsFunc(e.Object.Status.Conditions, isReady) {
			return
		}
		seen[name] = true
		mu.Lock()
		defer mu.Unlock()
		if at, ours := begun[name]; ours {
			times = append(times, millisecondsSince(at))
			ready <- name
		}
	}
	go func() {
		for ctx.Err() == nil { // the API ends a watch that is slow; a new one begins with the pods that exist
			events, err := s.api.do(ctx, http.MethodGet, podsPath+"?watch=true&resourceVersion=0", nil)
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("the watch of pods: %v", err)
				}
				return
			}
			lines := bufio.NewScanner(events)
			lines.Buffer(nil, 1<<22)
			for lines.Scan() {
				event(lines.Bytes())
			}
			events.Close()
		}
	}()
	one := func(name string) error {
		mu.Lock()
		begun[name] = time.Now()
		mu.Unlock()
		body, err := s.api.do(ctx, http.MethodPost, podsPath, object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name, "labels": object{"app": "start"}},
			"spec": object{"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false, "topologySpreadConstraints": []object{{
				"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": object{"matchLabels": object{"app": "start"}}}},
				"containers": []object{{"name": "serve", "image": imageName, "imagePullPolicy": "Never", "args": []string{"serve", ":8080"}}}}})
		if err == nil {
			body.Close()
		}
		return err
	}
	errs := make(chan error, count)
	for range count {
		s.count++
		name := fmt.Sprintf("start-%d", s.count)
		if atOnce {
			go func() { errs <- one(name) }()
		} else {
			errs <- one(name)
		}
	}
	for range count {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	limit := time.After(kerneltest.Slow(5 * time.Minute))
	for i := range count {
		select {
		case <-ready:
		case <-limit:
			t.Fatalf("%d of %d pods are ready:\n%s", i, count, s.cluster.mustKubectl(t, "get", "pods", "-o", "wide"))
		}
	}
	mu.Lock()
	defer mu.Unlock()
	return times
}

func (s *starter) removeAll(t *testing.T) {
	t.Helper()
	s.cluster.mustKubectl(t, "delete", "pods", "-l", "app=start", "--wait=true")
	s.cluster.noPods(t)
}

// plugins returns the time that containerd waited for plugins to attach pods, and how often, on all nodes so far.
func (s *starter) plugins(t *testing.T) (sum time.Duration, count int) {
	t.Helper()
	for _, n := range s.cluster.hosts {
		for line := range strings.Lines(n.shell(t, "curl -sS http://127.0.0.1:1338/v1/metrics")) {
			if !strings.Contains(line, "network_plugin_operations_duration_seconds_") || !strings.Contains(line, `"set_up_pod"`) {
				continue
			}
			f := strings.Fields(line)
			v, err := strconv.ParseFloat(f[len(f)-1], 64)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case strings.Contains(line, "_sum{"):
				sum += time.Duration(v * float64(time.Second))
			case strings.Contains(line, "_count{"):
				count += int(v)
			}
		}
	}
	return sum, count
}
