package enforce

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/kubetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/nft"
)

// latencyVariable enables TestLatency. Its value is a list of numbers of policies and pods: "1,100 10000,10000".
const latencyVariable = "FAIRLEAD_POLICY_LATENCY"

// TestLatency measures the time from a request to a real API server until the kernel of a node has the changed rules, with
// many policies and pods. It includes the server's work.
func TestLatency(t *testing.T) {
	for _, size := range strings.Fields(kerneltest.OptIn(t, latencyVariable)) {
		var policies, pods int
		if _, err := fmt.Sscanf(size, "%d,%d", &policies, &pods); err != nil {
			t.Fatalf("%s=%q: want POLICIES,PODS", latencyVariable, size)
		}
		t.Run(size, func(t *testing.T) { measureLatency(t, policies, pods) })
	}
}

// latencyTown is a cluster with 100 pods in each namespace and on each node.
type latencyTown struct {
	*kubetest.Server
	t *testing.T
}

const perGroup = 100 // pods of a namespace, and of a node

func measureLatency(t *testing.T, policies, pods int) {
	town := latencyTown{kubetest.Start(t), t}
	netns := kerneltest.Netns(t)
	town.Node("n0", []string{"192.0.2.1"})
	groups := max(pods/perGroup, 1)
	town.each(groups, func(i int) error {
		return firstError(town.Create("/api/v1/namespaces", fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: ns%d}}`, i)),
			town.Create(fmt.Sprintf("/api/v1/namespaces/ns%d/serviceaccounts", i), `{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}`))
	})
	began := time.Now()
	town.each(pods, func(i int) error {
		path := fmt.Sprintf("/api/v1/namespaces/ns%d/pods", i%groups)
		return firstError(town.Create(path, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: p%d, labels: {app: a%d}}, spec: {nodeName: n%d, containers: [{name: c, image: i}]}}`, i, i/groups%10, i/perGroup)),
			town.patch(fmt.Sprintf("%s/p%d/status", path, i), fmt.Sprintf(`{"status": {"phase": "Running", "podIPs": [{"ip": "10.%d.%d.%d"}]}}`, i>>16, i>>8&255, i&255)))
	})
	town.each(policies, func(i int) error {
		return town.Create(fmt.Sprintf("/apis/networking.k8s.io/v1/namespaces/ns%d/networkpolicies", i%groups), fmt.Sprintf(`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: x%d},
			spec: {podSelector: {matchLabels: {app: a%d}}, ingress: [{from: [{podSelector: {matchLabels: {app: a%d}}, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ns%d}}}]}]}}`, i, i/groups%10, i*7%10, i*13%groups))
	})
	must(t, town.Create(watchedPath, watchedPolicy))
	t.Logf("created %d policies and %d pods in %v", policies, pods, time.Since(began).Round(time.Second))

	ctx, stop := context.WithCancel(t.Context())
	e := New(Options{Config: town.Config, Node: "n0", Log: slog.New(slog.DiscardHandler)})
	ended := make(chan error, 1)
	began = time.Now()
	go func() { ended <- kerneltest.Inside(netns, func() error { return e.Run(ctx) }) }()
	defer func() { stop(); <-ended }()
	kerneltest.Within(t, 10*time.Minute, func() error {
		if p := e.Problem(); p != "" {
			return fmt.Errorf("%s", p)
		}
		return nil
	})
	t.Logf("policy is in force after %v", time.Since(began).Round(10*time.Millisecond))

	// The last pod is on another node, unless there is one node only.
	last := pods - 1
	path := fmt.Sprintf("/api/v1/namespaces/ns%d/pods/p%d", last%groups, last)
	town.measure(netns, "a pod becomes a peer, or stops being one", func(i int) error {
		return town.patch(path, []string{`{"metadata": {"labels": {"role": null}}}`, `{"metadata": {"labels": {"role": "peer"}}}`}[i%2])
	})
	town.measure(netns, "a policy for a pod of the node changes", func(i int) error {
		return town.patch(watchedPath+"/watched", fmt.Sprintf(`{"spec": {"ingress": [{"from": [{"podSelector": {"matchLabels": {"role": "peer"}}}], "ports": [{"port": %d}]}]}}`, 1000+i))
	})
}

const (
	watchedPath   = "/apis/networking.k8s.io/v1/namespaces/ns0/networkpolicies"
	watchedPolicy = `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: watched}, spec: {podSelector: {matchLabels: {app: a0}}, ingress: [{from: [{podSelector: {matchLabels: {role: peer}}, namespaceSelector: {}}]}]}}`
)

func firstError(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

// each calls f for each number below n, with several at once.
func (s latencyTown) each(n int, f func(i int) error) {
	s.t.Helper()
	var next atomic.Int64
	var wait sync.WaitGroup
	for range 16 {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					s.t.Errorf("object %d: %v", i, err)
					return
				}
			}
		})
	}
	wait.Wait()
	if s.t.Failed() {
		s.t.FailNow()
	}
}

func (s latencyTown) patch(path, text string) error {
	return s.Client().Patch(types.StrategicMergePatchType).AbsPath(path).Body([]byte(text)).Do(s.t.Context()).Error()
}

// measure makes changes, one after the other, and waits for the kernel each time.
func (s latencyTown) measure(netns, what string, change func(i int) error) {
	s.t.Helper()
	var conn *netlink.Conn
	must(s.t, kerneltest.Inside(netns, func() (err error) {
		conn, err = netlink.Dial(unix.NETLINK_NETFILTER, make([]byte, netlink.BufferSize))
		return err
	}))
	defer conn.Close()
	generation := func() string {
		resp, err := conn.Do([]netlink.Request{{Type: nft.Subsystem | unix.NFT_MSG_GETGEN, Body: nft.Message("ip")}})
		must(s.t, err)
		return string(resp[0].Messages[0])
	}
	var took []time.Duration
	for i := range 200 {
		time.Sleep(50 * time.Millisecond) // until the pass for connections is over
		before, began := generation(), time.Now()
		must(s.t, change(i+1))
		answered := time.Since(began)
		for generation() == before {
			if time.Since(began) > time.Minute {
				s.t.Fatalf("%s: the kernel does not change after the API's answer, which took %v", what, answered)
			}
			time.Sleep(200 * time.Microsecond)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	at := func(percent int) time.Duration { return took[len(took)*percent/100].Round(100 * time.Microsecond) }
	s.t.Logf("%s: p50 %v, p90 %v, p99 %v", what, at(50), at(90), at(99))
}
