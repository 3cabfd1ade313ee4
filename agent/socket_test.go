package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestWaitForSharedNetwork checks that waiting for a shared network fails at once with advice, because no namespace
// will appear.
func TestWaitForSharedNetwork(t *testing.T) {
	t.Parallel()
	v := newStoreCache(filepath.Join(t.TempDir(), "snapshot"), func() {}, quietLog())
	v.Reset(source.DecodeAll([]store.Entry{{Key: "networks/default", Value: []byte(`{"subnets": [{"cidr": "10.0.0.0/8"}]}`), Revision: 2}}), 2)
	a := &Agent{storeCache: v, status: newStatus("n1")}
	_, err := a.waitForNetwork(context.Background(), json.RawMessage(`{"network": "default"}`))
	e, ok := errors.AsType[*cni.Error](err)
	if !ok || e.Code != cni.CodeInvalidNetworkConfig || !strings.Contains(e.Msg, `the network is not isolated: attach its containers with ptp or bridge and "ipam": {"type": "fairlead-ipam", "network": "default"}`) {
		t.Errorf("got %v", err)
	}
}

// TestStateTruncated checks that a state with long lists fits in one reply.
func TestStateTruncated(t *testing.T) {
	t.Parallel()
	long := make([]string, 5000)
	s := &State{Reasons: long, Unreachable: long[:maxListed], Invalid: long[:maxListed+1]}
	if got := s.truncated(); len(got.Reasons) != maxListed+1 || got.Reasons[maxListed] != "and 4900 more" || len(got.Unreachable) != maxListed || got.Invalid[maxListed] != "and 1 more" || len(s.Reasons) != 5000 {
		t.Errorf("%d, %d and %d words: %q", len(got.Reasons), len(got.Unreachable), len(got.Invalid), got.Reasons[maxListed:])
	}
}

// TestStateWithLongTexts checks that a state with long errors fits in one reply, and that each begins as it did.
func TestStateWithLongTexts(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 200_000)
	s := &State{Reasons: []string{"one\n" + long + "\nthree"}, Failures: slices.Repeat([]string{long}, 200), StoreError: long, PublishError: "short"}
	got := s.truncated()
	raw, err := json.Marshal(got)
	if err != nil || len(raw) > local.MaxLine/4 {
		t.Errorf("the state has %d bytes (%v), and a line %d", len(raw), err, local.MaxLine)
	}
	if r := got.Reasons[0]; !strings.HasPrefix(r, "one\nää") || !strings.HasSuffix(r, "ä...\nthree") || got.PublishError != "short" {
		t.Errorf("got %q and %q", r, got.PublishError)
	}
	if len(s.Reasons[0]) < len(long) {
		t.Error("the state itself was shortened")
	}
}

// TestStoreConfigIsAbsolute checks that a command in another directory than the agent's finds the agent's store.
func TestStoreConfigIsAbsolute(t *testing.T) {
	t.Parallel()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	c := &config.Config{Store: config.Store{
		File: "store", Etcd: config.Etcd{CACert: "ca.pem", Cert: "/etc/cert.pem", PasswordFile: "../password"}, Kubernetes: config.Kubernetes{Kubeconfig: config.InCluster},
	}}
	got := (&Agent{o: Options{Config: c}}).storeConfig().Store
	want := config.Store{
		File: dir + "/store", Etcd: config.Etcd{CACert: dir + "/ca.pem", Cert: "/etc/cert.pem", PasswordFile: filepath.Dir(dir) + "/password"}, Kubernetes: config.Kubernetes{Kubeconfig: config.InCluster},
	}
	if !reflect.DeepEqual(got, want) || c.Store.File != "store" {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestRemovedSocket checks that plugins reach the agent again after other software removed the directory of its socket,
// and that the socket ends with the agent.
func TestRemovedSocket(t *testing.T) {
	t.Parallel()
	a, stop := startAgent(t, &recorder{netip.MustParsePrefix("192.0.2.1/24")}, "")
	socket := local.Open(a.o.Lib, a.o.Run).Socket()
	answers := func() bool {
		c, err := net.Dial("unix", socket)
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	for range 2 {
		kerneltest.Until(t, answers)
		if err := os.RemoveAll(a.o.Run); err != nil {
			t.Fatal(err)
		}
	}
	kerneltest.Until(t, answers)
	if _, err := lockHost(a.o.Run); err == nil {
		t.Error("a second agent may start")
	}
	stop()
	kerneltest.Until(t, func() bool { return !answers() })
}
