package cluster

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/install/cluster/probe"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// checkedCluster is an API with agents and running client pods on the nodes n1 and n2, and a listening pod on n1 only.
func checkedCluster(t *testing.T, before func(*http.Request)) (*Client, *observation) {
	pod := func(set, node, ips string) string {
		return fmt.Sprintf(`{"metadata": {"name": %q, "ownerReferences": [{"kind": "DaemonSet", "name": %q}]}, "spec": {"nodeName": %q,
			"containers": [{"name": "c"}]}, "status": {"phase": "Running", "podIPs": [%s]}}`, set+"-"+node, set, node, ips)
	}
	pods := map[string]string{
		agentName:    pod(agentName, "n1", "") + "," + pod(agentName, "n2", ""),
		listenerName: pod(listenerName, "n1", `{"ip": "10.244.1.2"}`),
		clientName:   pod(clientName, "n1", "") + "," + pod(clientName, "n2", ""),
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before != nil {
			before(r)
		}
		w.Header().Set("Content-Type", "application/json")
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/log"):
			fmt.Fprint(w, `{"pods": {"tried": 0}}`)
		case strings.HasSuffix(path, "/pods"):
			fmt.Fprintf(w, `{"items": [%s]}`, pods[strings.TrimPrefix(r.URL.Query().Get("labelSelector"), nameLabel+"=")])
		case path == "/api/v1/nodes":
			fmt.Fprint(w, `{"items": [{"metadata": {"name": "n1"}}, {"metadata": {"name": "n2"}}]}`)
		case strings.HasSuffix(path, "/services/kube-dns"):
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`)
		default:
			fmt.Fprint(w, `{"spec": {"template": {"spec": {"containers": [{}]}}}}`)
		}
	}))
	t.Cleanup(api.Close)
	c, err := New(&rest.Config{Host: api.URL}, "x")
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.observe(t.Context(), "net")
	if err != nil || len(s.agents()) != 2 {
		t.Fatal(s.agents(), err)
	}
	return c, &s
}

// TestCheckWithSlowAPI checks that the listening pods are known although the time ends during a call.
func TestCheckWithSlowAPI(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	c, s := checkedCluster(t, func(r *http.Request) {
		if strings.Contains(r.URL.RawQuery, listenerName) && calls.Add(1) > 1 {
			<-r.Context().Done()
		}
	})
	o := CheckOptions{Namespace: "net", Timeout: kerneltest.Slow(4 * time.Second), Progress: func(string) {}}
	found, err := c.waitForListeners(t.Context(), s, o, &Check{})
	if err != nil || found["n1"] == nil || calls.Load() < 2 {
		t.Errorf("%v, %v after %d calls", found, err, calls.Load())
	}
}

// TestCheckWithoutListener checks that a node to which nothing could connect is not reported as one that works.
func TestCheckWithoutListener(t *testing.T) {
	t.Parallel()
	c, s := checkedCluster(t, nil)
	o := CheckOptions{Namespace: "net", Timeout: time.Second, Progress: func(string) {}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out := &Check{OK: true}
	targets := probe.Targets{Pods: []probe.Target{target("n1", []string{"10.244.1.2"}, CheckPort), target("n2", nil, CheckPort)}}
	if err := c.runClients(ctx, s, targets, o, out); err != nil {
		t.Fatal(err)
	}
	if out.OK || len(out.Nodes) != 2 || out.Nodes[0].Error != "" || !strings.Contains(out.Nodes[1].Error, "fairlead-check") {
		t.Errorf("%+v", out)
	}
}

// TestResultsWithoutTime checks that a node whose result was never read has a reason: a check must not count it as
// one that works.
func TestResultsWithoutTime(t *testing.T) {
	t.Parallel()
	c, s := checkedCluster(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	have, missing, err := results[probe.Result](ctx, c, "net", clientName, s.agents(), func(string) {})
	if err != nil || len(have) != 0 || missing["n1"] == "" || missing["n2"] == "" {
		t.Errorf("%v, %q, %v", have, missing, err)
	}
}

// TestHostAddresses checks that pods connect to those addresses of a node that other nodes use, in the families that pods
// have.
func TestHostAddresses(t *testing.T) {
	t.Parallel()
	n := &corev1.Node{}
	for _, a := range [][2]string{{"Hostname", "n1"}, {"InternalIP", "192.0.2.1"}, {"InternalIP", "198.51.100.1"}, {"InternalIP", "2001:db8::1"}, {"ExternalIP", "203.0.113.1"}} {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeAddressType(a[0]), Address: a[1]})
	}
	for _, c := range []struct {
		four, six bool
		want      []string
	}{
		{true, false, []string{"192.0.2.1"}},
		{false, true, []string{"2001:db8::1"}},
		{true, true, []string{"192.0.2.1", "2001:db8::1"}},
	} {
		if got := hostAddresses(n, map[bool]bool{false: c.four, true: c.six}); !slices.Equal(got, c.want) {
			t.Errorf("IPv4 %v, IPv6 %v: %v, want %v", c.four, c.six, got, c.want)
		}
	}
}
