package probe

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// listen starts a listener for a node and returns its address.
func listen(t *testing.T, node string) netip.AddrPort {
	t.Helper()
	address := kerneltest.FreePort(t, "127.0.0.1").String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Listen(ctx, address, node) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return netip.MustParseAddrPort(address)
}

func TestRun(t *testing.T) {
	t.Parallel()
	a, b := listen(t, "a"), listen(t, "b")
	closed := netip.MustParseAddrPort("127.0.0.1:1")
	other := httptest.NewTLSServer(nil)
	t.Cleanup(other.Close)
	r := Run(t.Context(), "a", Targets{
		Seconds:  int(kerneltest.Slow(6 * time.Second).Seconds()), // for TLS handshakes
		Pods:     []Target{{"a", []netip.AddrPort{closed}}, {"b", []netip.AddrPort{b}}, {"c", []netip.AddrPort{a}}, {"d", []netip.AddrPort{closed}}},
		Hosts:    []Target{{"b", []netip.AddrPort{closed}}},
		Services: []netip.AddrPort{a, netip.MustParseAddrPort(other.Listener.Addr().String())},
		DNS:      "name.invalid",
	})
	if r.Node != "a" || r.Pods.Tried != 3 || r.Pods.OK != 1 || r.Hosts.Tried != 1 || r.Hosts.OK != 1 || r.Service.OK != 0 || r.DNS.OK != 0 || r.DNS.Tried != 1 {
		t.Errorf("%+v", r)
	}
	all := strings.Join(slices.Concat(r.Pods.Errors, r.Service.Errors, r.DNS.Errors), "\n")
	for _, want := range []string{
		`pod 127.0.0.1 on node c: another program answers there: "fairlead-check a"`, "pod 127.0.0.1 on node d: connect: connection refused",
		fmt.Sprintf("Service kubernetes at %s: connected, but no TLS", a), "another program answers there: its certificate is not for kubernetes.default.svc", "DNS name name.invalid: ",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
}

// TestCutOffAttempt checks that the error of an attempt that the time limit cut off does not replace an earlier one, even if
// the context does not know yet that it has ended.
func TestCutOffAttempt(t *testing.T) {
	t.Parallel()
	ctx, attempts := &late{Context: t.Context(), deadline: time.Now().Add(time.Hour)}, 0
	err := repeat(ctx, func(context.Context) error {
		if attempts++; attempts == 1 {
			return errors.New("the reason")
		}
		ctx.deadline = time.Now()
		return errors.New("cut off")
	})
	if err == nil || err.Error() != "the reason" || attempts != 2 {
		t.Errorf("after %d attempts: %v", attempts, err)
	}
}

// late is a context that does not end at its deadline.
type late struct {
	context.Context
	deadline time.Time
}

func (l *late) Deadline() (time.Time, bool) { return l.deadline, true }

// TestRunRepeats starts a listener after the first attempt.
func TestRunRepeats(t *testing.T) {
	t.Parallel()
	address := kerneltest.FreePort(t, "127.0.0.1").String()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.AfterFunc(2*pause, func() { _ = Listen(ctx, address, "b") })
	r := Run(ctx, "a", Targets{Seconds: 60, Pods: []Target{{"b", []netip.AddrPort{netip.MustParseAddrPort(address)}}}})
	if r.Pods.OK != 1 {
		t.Errorf("%+v", r)
	}
}

// TestOthers checks that in a large cluster every node is the target of as many nodes as it has targets.
func TestOthers(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, MaxPeers + 1, 3 * MaxPeers} {
		var all []Target
		for i := range n {
			all = append(all, Target{Node: fmt.Sprintf("n%03d", (i*7)%n)})
		}
		if n%7 == 0 {
			t.Fatal("7 must not divide the number of nodes")
		}
		to := map[string]int{}
		for _, from := range all {
			list := others(all, from.Node)
			if len(list) != min(n-1, MaxPeers) {
				t.Errorf("%d nodes: %d targets", n, len(list))
			}
			for _, x := range list {
				if to[x.Node]++; x.Node == from.Node {
					t.Errorf("%s is its own target", x.Node)
				}
			}
		}
		for name, count := range to {
			if count != min(n-1, MaxPeers) {
				t.Errorf("%d nodes: %s is the target of %d", n, name, count)
			}
		}
	}
}

// TestTargetsOfLargeCluster checks that the targets of 5,000 nodes with addresses of both families and long names fit into a
// ConfigMap.
func TestTargetsOfLargeCluster(t *testing.T) {
	t.Parallel()
	want := Targets{DNS: "kubernetes.default.svc", Seconds: 30}
	for i := range 5000 {
		x := Target{Node: fmt.Sprintf("%x.compute.region-of-the-cloud.example.com", sha256.Sum256([]byte(fmt.Sprint(i)))), Addresses: []netip.AddrPort{
			netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)}), 9480),
			netip.AddrPortFrom(netip.AddrFrom16([16]byte{0xfd, 0, 14: byte(i >> 8), 15: byte(i)}), 9480),
		}}
		want.Pods, want.Hosts = append(want.Pods, x), append(want.Hosts, x)
	}
	raw, err := want.Encode()
	if err != nil || len(raw) > 1<<20-1000 {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	if got, err := DecodeTargets(raw); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("decoded otherwise: %v", err)
	}
	if _, err := DecodeTargets([]byte("{}")); err == nil {
		t.Error("JSON that is not compressed is accepted")
	}
}

// TestHandshake accepts a server with the API server's name in its certificate.
func TestHandshake(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(nil)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate(t, apiName)}}
	server.StartTLS()
	t.Cleanup(server.Close)
	if err := handshake(t.Context(), netip.MustParseAddrPort(server.Listener.Addr().String())); err != nil {
		t.Error(err)
	}
}
