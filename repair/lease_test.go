package repair_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/rpc"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/doctor"
	"github.com/fairlead/fairlead/doctor/gather"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugins/ipam/dhcpd"
	"github.com/fairlead/fairlead/repair"
)

// daemon answers as the DHCP daemon does.
type daemon struct{ leases []dhcpd.State }

func (d *daemon) List(_ *dhcpd.CmdArgs, out *[]byte) (err error) {
	*out, err = json.Marshal(d.leases)
	return err
}

// listen serves a service under the name of the daemon's.
func listen(t *testing.T, service any) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := rpc.NewServer()
	if err := s.RegisterName("DHCP", service); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(rpc.DefaultRPCPath, s)
	go func() { _ = http.Serve(l, mux) }()
	return socket
}

// Reference has a method of the reference daemon, and none of Fairlead's.
type reference struct{}

func (reference) Release(_ *dhcpd.CmdArgs, _ *struct{}) error { return nil }

// TestLostLease checks that repair and doctor leave an address from DHCP alone whose lease is not valid.
func TestLostLease(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	addr, all := netip.MustParsePrefix("192.0.2.5/24"), netip.MustParsePrefix("0.0.0.0/0")
	gw := netip.MustParseAddr("192.0.2.1")
	held := dhcpd.State{Network: "n", Container: "c1", IfName: "eth0", State: "held"}
	lost, noRoute := held, held
	lost.Lost, lost.LostAddresses = "the lease expired", []netip.Addr{addr.Addr()}
	noRoute.Lost, noRoute.LostRoutes = "the router is gone", []netip.Prefix{all}
	for _, c := range []struct {
		name, socket   string
		restored       int // the address and the default route
		problem, finds string
	}{
		{"held", listen(t, &daemon{[]dhcpd.State{held}}), 2, "", "address-missing"},
		{"lost", listen(t, &daemon{[]dhcpd.State{lost}}), 0, "the lease expired", "lease-lost"},
		{"route lost", listen(t, &daemon{[]dhcpd.State{noRoute}}), 1, "the router is gone", "lease-lost"},
		{"unknown", listen(t, &daemon{}), 0, "has no lease for it", "lease-unknown"},
		{"away", filepath.Join(t.TempDir(), "none"), 0, "no DHCP daemon answers", "dhcp-daemon-away"},
		{"reference daemon", listen(t, reference{}), 2, "", "address-missing"},
	} {
		netns, root, cache := kerneltest.Netns(t), t.TempDir(), t.TempDir()
		kerneltest.In(t, netns, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "other")
		kerneltest.In(t, netns, "ip", "link", "set", "eth0", "up")
		kerneltest.In(t, netns, "ip", "link", "set", "other", "up")
		dir, runtime := attach.Open(root), libcni.NewCNIConfigWithCacheDir(nil, cache, nil)
		r := dir.New("n", "c1", "eth0", netns)
		r.Parts = []attach.Part{{Plugin: "bridge", IPAM: "dhcp", Done: true,
			Result: attach.LazyOf(&cni.Result{IPs: []cni.IP{{Address: addr, Gateway: gw}}}),
			Objects: attach.LazyOf(kernel.Objects{
				&kernel.Addr{In: kernel.Container, Link: "eth0", Prefix: addr},
				&kernel.Route{In: kernel.Container, Link: "eth0", Dst: all, Via: gw}})}}
		if err := dir.Write(r); err != nil {
			t.Fatal(err)
		}
		r.Unlock()
		conf := base64.StdEncoding.EncodeToString(fmt.Appendf(nil,
			`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"bridge","ipam":{"type":"dhcp","daemonSocketPath":%q}}]}`, c.socket))
		if err := os.MkdirAll(filepath.Join(cache, "results"), 0o700); err != nil {
			t.Fatal(err)
		}
		data := fmt.Sprintf(`{"kind":"cniCacheV1","containerId":"c1","config":%q,"ifName":"eth0","networkName":"n","netns":%q,"result":{}}`, conf, netns)
		if err := os.WriteFile(filepath.Join(cache, "results", "n-c1-eth0"), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		facts, _, err := gather.Facts(t.Context(), gather.Options{Runtime: runtime, StateDir: root, LibDir: cache, ConfDir: t.TempDir(),
			Include: func(*attach.Record) bool { return true }})
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, f := range doctor.Examine(facts) {
			found[f.Name] = true
		}
		if !found[c.finds] || found["address-missing"] != (c.restored > 0) {
			t.Errorf("%s: doctor found %v, want %s", c.name, found, c.finds)
		}
		got := repair.Attachment(dir, runtime, r, false)
		if len(got.Restored) != c.restored || len(got.Failed) > 0 || got.Error != "" || !strings.Contains(got.Lease, c.problem) || c.problem == "" && got.Lease != "" {
			t.Errorf("%s: %+v", c.name, got)
		}
		if has := strings.Contains(kerneltest.In(t, netns, "ip", "addr"), addr.String()); has != (c.restored > 0) {
			t.Errorf("%s: the container has the address: %v", c.name, has)
		}
	}
}
