package kernel

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
)

// gatewayPair returns the bridge of a network and the pair that has the gateway of a VLAN.
func gatewayPair() (*Bridge, *Veth) {
	return &Bridge{Name: "br0", MAC: MAC("br0")},
		&Veth{Name: "port0", MAC: MAC("port0"), PeerName: "br0.7", PeerMAC: MAC("br0.7"), Master: "br0", IsShared: true}
}

// TestConcurrentSharedPair creates the pair of a network after another ADD has found that it is missing.
func TestConcurrentSharedPair(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	first, second := openHost(t), openHost(t)
	bridge, pair := gatewayPair()
	if err := second.Apply(Objects{bridge}); err != nil {
		t.Fatal(err)
	}
	if err := first.ensureEach(Objects{pair}); err != nil { // queued
		t.Fatal(err)
	}
	if err := second.Apply(Objects{pair}); err != nil {
		t.Fatal(err)
	}
	if err := first.flush(); err != nil {
		t.Errorf("the second of two ADDs: %v", err)
	}
	if d, err := second.Compare(Objects{bridge, pair}); err != nil || len(d) > 0 {
		t.Errorf("check: %v, %v", d, err)
	}
}

// TestSharedPairJoinsNewBridge checks that the pair of a network becomes a port of the bridge again after an
// administrator has deleted the bridge.
func TestSharedPairJoinsNewBridge(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	bridge, pair := gatewayPair()
	for range 2 {
		if err := openHost(t).Apply(Objects{bridge, pair, &Up{Link: "port0", IsShared: true}, &Up{Link: "br0.7", IsShared: true}}); err != nil {
			t.Fatal(err)
		}
		if d, err := openHost(t).Compare(Objects{bridge, pair}); err != nil || len(d) > 0 {
			t.Errorf("check: %v, %v", d, err)
		}
		kerneltest.Run(t, strings.Fields("ip link delete br0")...)
	}
}

func openHost(t *testing.T) *Engine { return openIn(t, nil) }

// openIn returns an engine for a container's namespace, which may be nil.
func openIn(t *testing.T, ns *netns.Handle) *Engine {
	t.Helper()
	e, err := Open(ns, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}
