package nflog_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/kerneltest/router"
	"github.com/fairlead/fairlead/kernel/nflog"
	"github.com/fairlead/fairlead/kernel/nftable"
)

const group = 7

// logging returns a router that reports and drops packets to port 9999 or to 10.0.0.9.
func logging(t *testing.T) *router.Router {
	r := router.New(t)
	table := nftable.New("inet", "t")
	table.Chains["forward"] = &nftable.Chain{Hook: "type filter hook forward priority 0", Rules: []nftable.Rule{
		{Text: `th dport 9999 log prefix "port: x y" group 7 drop`},
		{Text: "ip daddr 10.0.0.9 log group 7 drop"},
	}}
	_, err := r.Table.Sync(t.Context(), table)
	must(t, err)
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func packet(src, dst, protocol string, port uint16) router.Packet {
	return router.Packet{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Protocol: protocol, Port: port}
}

// TestListener receives packets of both families and of all protocols.
func TestListener(t *testing.T) {
	t.Parallel()
	r := logging(t)
	l, err := nflog.Open(group)
	must(t, err)
	r.Send([]router.Packet{
		packet("10.0.0.1", "10.0.0.2", "TCP", 9999), packet("fd00::1", "fd00::2", "UDP", 9999), packet("10.0.0.1", "10.0.0.2", "SCTP", 9999),
		packet("10.0.0.1", "10.0.0.9", "ICMP", 0), packet("10.0.0.1", "10.0.0.2", "TCP", 80),
	})
	want := []string{"port: x y 10.0.0.1 10.0.0.2 TCP 9999", "port: x y fd00::1 fd00::2 UDP 9999", "port: x y 10.0.0.1 10.0.0.2 SCTP 9999", " 10.0.0.1 10.0.0.9 ICMP 0"}
	var got []string
	ctx, stop := context.WithTimeout(t.Context(), kerneltest.Slow(5*time.Second))
	defer stop()
	err = l.Run(ctx, func(p *nflog.Packet, lost int) {
		if since := time.Since(p.Time); since < 0 || since > kerneltest.Slow(time.Minute) || lost != 0 {
			t.Errorf("%+v: %v old, %d lost", p, since, lost)
		}
		if (p.SrcPort == 0) != (p.Protocol == "ICMP") {
			t.Errorf("source port %d of %s", p.SrcPort, p.Protocol)
		}
		if got = append(got, fmt.Sprint(p.Prefix, " ", p.Src, " ", p.Dst, " ", p.Protocol, " ", p.DstPort)); len(got) == len(want) {
			stop()
		}
	})
	if !slices.Equal(got, want) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %q (%v), want %q", got, err, want)
	}
}

// TestOneListener opens a group that has a listener already.
func TestOneListener(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	l, err := nflog.Open(group)
	must(t, err)
	_, err = nflog.Open(group)
	if err == nil || !strings.Contains(err.Error(), "log group 7: ") || !strings.HasSuffix(err.Error(), " receives them") {
		t.Errorf("the second listener: %v", err)
	}
	other, err := nflog.Open(group + 1)
	must(t, err)
	other.Close()
	must(t, kerneltest.Inside(kerneltest.Netns(t), func() error { // another namespace has groups of its own
		there, err := nflog.Open(group)
		if err == nil {
			there.Close()
		}
		return err
	}))
	l.Close()
	kerneltest.Eventually(t, func() error {
		again, err := nflog.Open(group)
		if err == nil {
			again.Close()
		}
		return err
	})
}

// TestLost sends more than fits the buffer while nobody reads. The packets that arrive and those that are reported lost
// are all.
func TestLost(t *testing.T) {
	t.Parallel()
	r := logging(t)
	l, err := nflog.Open(group)
	must(t, err)
	const sent = 20000
	list := make([]router.Packet, sent)
	for i := range list {
		list[i] = packet("10.0.0.1", "10.0.0.2", "UDP", 9999)
	}
	r.Send(list)
	var got, lost atomic.Int64
	go func() {
		_ = l.Run(t.Context(), func(_ *nflog.Packet, n int) { got.Add(1); lost.Add(int64(n)) })
	}()
	all := int64(sent)
	kerneltest.Eventually(t, func() error {
		r.Send(list[:1]) // the number of a packet after the gap tells its size
		if all++; lost.Load() == 0 || got.Load()+lost.Load() < sent {
			return fmt.Errorf("%d packets arrived and %d were lost, want %d", got.Load(), lost.Load(), sent)
		}
		return nil
	})
	if got.Load()+lost.Load() > all {
		t.Errorf("%d packets arrived and %d were lost of %d", got.Load(), lost.Load(), all)
	}
	t.Logf("%d of %d packets were lost", lost.Load(), sent)
}
