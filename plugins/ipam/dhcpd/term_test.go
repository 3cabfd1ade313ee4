package dhcpd

import (
	"bufio"
	"context"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cni"
)

func TestLeaseTimes(t *testing.T) {
	t.Parallel()
	const now = 1000 * time.Second
	for _, c := range []struct {
		renew, rebind, valid uint32
		want                 [3]time.Duration // seconds from now
	}{
		{0, 0, 80, [3]time.Duration{40, 70, 80}},
		{30, 60, 80, [3]time.Duration{30, 60, 80}},
		{90, 95, 80, [3]time.Duration{40, 70, 80}},
		{60, 50, 80, [3]time.Duration{28, 50, 80}},
		{0, 0, 3153600000, [3]time.Duration{1576800000, 2759400000, 3153600000}}, // 100 years
	} {
		got := newTerm(now, c.renew, c.rebind, c.valid, 0.875)
		if d := [3]time.Duration{got.Renew - now, got.Rebind - now, got.Expire - now}; d[0].Truncate(time.Second) != c.want[0]*time.Second || d[1] != c.want[1]*time.Second || d[2] != c.want[2]*time.Second {
			t.Errorf("%+v: got %v", c, d)
		}
	}
	if got := newTerm(now, 1, 2, infinite, 0.8); got.phase(now+1<<60) != idle || got.next(now, false) != forever {
		t.Errorf("an infinite term: %+v", got)
	}
}

// TestRetriesInEachLeasePhase checks an attempt in each phase of a lease, and when the next follows after a failure.
func TestRetriesInEachLeasePhase(t *testing.T) {
	t.Parallel()
	lease := newTerm(0, 0, 0, 3600, 0.875)
	short := newTerm(0, 1, 3, 6, 0.875)
	for _, c := range []struct {
		term  term
		at    time.Duration // seconds
		tried bool
		want  phase
		next  time.Duration // seconds
	}{
		{lease, 0, false, idle, 1800},
		{lease, 1800, false, renewing, 1800},
		{lease, 1800, true, renewing, 1800 + 675},
		{lease, 3140, true, renewing, 3150}, // not beyond the next phase
		{lease, 3150, false, rebinding, 3150},
		{lease, 3150, true, rebinding, 3375},
		{lease, 3590, true, rebinding, 3600},
		{lease, 3600, false, lost, 3600},
		{short, 1, true, renewing, 2},
		{short, 4, true, rebinding, 5},
		{term{Renew: forever, Expire: forever, Refused: "no"}, 1, false, lost, 1},
	} {
		if got := c.term.phase(c.at * time.Second); got != c.want {
			t.Errorf("%+v: phase %v", c, got)
		}
		if got := c.term.next(c.at*time.Second, c.tried); got != c.next*time.Second {
			t.Errorf("%+v: next %v", c, got)
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := newBackoff(3 * time.Second)
	for _, want := range []float64{0.25, 0.5, 1, 2, 3, 3} {
		if got := b.next().Seconds(); got < want*0.9 || got > want*1.1 {
			t.Errorf("a pause of %v, want about %v", got, want)
		}
	}
}

// TestInFlightLimit checks that waiting messages are limited to the slots, and that an old one does not count.
func TestInFlightLimit(t *testing.T) {
	t.Parallel()
	a := &inFlight{make(chan struct{}, 1)}
	release, err := a.acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := a.acquire(gone); err == nil {
		t.Error("two in one slot")
	}
	began := time.Now()
	if _, err := a.acquire(context.Background()); err != nil || time.Since(began) < inFlightTime/2 {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	release() // late and repeated: another message has the slot now
	release()
	if len(a.slots) != 1 {
		t.Error("the slot of another message was released")
	}
}

// TestNetConfigResult checks that router advertisements provide the prefix length and gateway of a DHCPv6 address.
func TestNetConfigResult(t *testing.T) {
	t.Parallel()
	var all netConfig
	all.add(netConfig{OnLink: []netip.Prefix{netip.MustParsePrefix("fd00:7::/64")}, Routes: []cni.Route{{Dst: netip.MustParsePrefix("::/0"), GW: netip.MustParseAddr("fe80::1")}}})
	all.add(netConfig{IPs: []cni.IP{{Address: netip.MustParsePrefix("fd00:7::100/128")}, {Address: netip.MustParsePrefix("fd00:8::100/128")}}})
	all.add(netConfig{IPs: []cni.IP{{Address: netip.MustParsePrefix("10.0.0.9/32")}}})
	got := all.result()
	if got.IPs[0].Address.String() != "fd00:7::100/64" || got.IPs[0].Gateway.String() != "fe80::1" || got.IPs[1].Address.Bits() != 128 || got.IPs[2].Gateway.IsValid() {
		t.Errorf("%+v", got.IPs)
	}
	objects := ""
	for _, o := range all.without(netConfig{IPs: got.IPs[1:]}).objects("eth0", got) {
		objects += o.String() + "; "
	}
	if objects != "ip addr add fd00:7::100/64 dev eth0 nodad; ip -6 route add default via fe80::1 dev eth0; " {
		t.Errorf("objects: %s", objects)
	}
}

func TestConnectionPreamble(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"CONNECT /_goRPC_ HTTP/1.0\n\n": true, "CONNECT /_goRPC_ HTTP/1.1\r\nHost: x\r\n\r\nrest": true, "CONNECT /_goRPC_ HTTP/1.0\n": false,
		"GET / HTTP/1.1\n\n": false, "": false, "CONNECT /_goRPC_ HTTP/1.0\n" + strings.Repeat("a: b\n", 200) + "\n": false,
	} {
		if err := hello(bufio.NewReader(strings.NewReader(text))); (err == nil) != good {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

// TestConcurrency checks that an eighth of the open files is for conversations, within limits.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	want := int(min(files.Cur/8, 4096))
	if got := maxConcurrent(); got != max(want, 64) {
		t.Errorf("%d conversations with %d files, want %d", got, files.Cur, want)
	}
}
