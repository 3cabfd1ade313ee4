package ipam

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"net"
	"net/netip"
	"net/rpc"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/leangob"
)

func dhcpNet(keys string) string {
	return `{"cniVersion": "1.1.0", "name": "net", "type": "bridge", "ipam": {"type": "dhcp"` + keys + `}}`
}

func TestParseDHCP(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ keys, args, want string }{
		{"", "", "/run/cni/dhcp.sock v4 true v6 false ra false [3 1] []"},
		{`, "dhcp4": false, "dhcp6": true, "acceptRA": true, "daemonSocketPath": "/s"`, "", "/s v4 false v6 true ra true [3 1] []"},
		{`, "request": [{"option": "121"}, {"option": 26}, {"option": "routers"}, {"option": "121"}]`, "", "/run/cni/dhcp.sock v4 true v6 false ra false [121 26 3 1] []"},
		{`, "request": [{"option": "6"}, {"skipDefault": true}]`, "", "/run/cni/dhcp.sock v4 true v6 false ra false [6] []"},
		{`, "provide": [{"option": "host-name", "value": "a", "fromArg": "NAME"}, {"option": "60", "fromArg": "NAME"}, {"option": 77, "value": "b"}]`, "",
			"/run/cni/dhcp.sock v4 true v6 false ra false [3 1] [{12 a} {77 b}]"},
		{`, "provide": [{"option": "host-name", "value": "a", "fromArg": "NAME"}, {"option": "60", "fromArg": "NAME"}]`, "IgnoreUnknown=1;NAME=n",
			"/run/cni/dhcp.sock v4 true v6 false ra false [3 1] [{12 n} {60 n}]"},
	} {
		got, err := ParseDHCP([]byte(dhcpNet(c.keys)), c.args)
		if err != nil {
			t.Errorf("%s: %v", c.keys, err)
			continue
		}
		var provide []string
		for _, o := range got.Provide {
			provide = append(provide, fmt.Sprintf("{%d %s}", o.Code, o.Value))
		}
		text := fmt.Sprintf("%s v4 %v v6 %v ra %v %v %s", got.Socket, got.V4, got.V6, got.AcceptRA, got.Request, provide)
		if text != c.want {
			t.Errorf("%s: got %s, want %s", c.keys, text, c.want)
		}
	}
}

// TestWantsDNS checks which options the configuration must request for DNS settings in the result.
func TestWantsDNS(t *testing.T) {
	t.Parallel()
	for option, want := range map[string]bool{"6": true, "domain-name": true, "domain-search": true, "26": false, "routers": false} {
		c, err := ParseDHCP([]byte(dhcpNet(`, "request": [{"option": "`+option+`"}]`)), "")
		if err != nil || c.WantsDNS() != want {
			t.Errorf("option %s: %v, want %v", option, err, want)
		}
	}
}

func FuzzParseDHCP(f *testing.F) {
	f.Add(dhcpNet(`, "request": [{"option": "121"}, {"option": 26}], "provide": [{"option": "host-name", "fromArg": "N"}]`), "N=x")
	f.Add(dhcpNet(`, "request": [{"option": -1}], "priority": 1e9, "routes": [{"dst": "::/0"}]`), "")
	f.Fuzz(func(t *testing.T, conf, args string) {
		c, err := ParseDHCP([]byte(conf), args)
		if err != nil {
			return
		}
		for _, o := range c.Provide {
			if reservedOption(o.Code) || len(o.Value) == 0 || len(o.Value) > 255 {
				t.Errorf("option %d with %d bytes", o.Code, len(o.Value))
			}
		}
		if !c.V4 && !c.V6 && !c.AcceptRA {
			t.Error("asks for nothing")
		}
	})
}

// Result is a result with the field names of the reference library.
type Result struct {
	CNIVersion string
	Interfaces []*struct{ Name, Mac string }
	IPs        []*struct {
		Interface *int
		Address   net.IPNet
		Gateway   net.IP
	}
	Routes []*struct {
		Dst      net.IPNet
		GW       net.IP
		Priority int
		Table    *int
	}
	DNS struct{ Nameservers, Search []string }
}

// TestDHCPResult reads what encoding/gob writes.
func TestDHCPResult(t *testing.T) {
	t.Parallel()
	var r Result
	_, v4, _ := net.ParseCIDR("10.0.0.0/23")
	v4.IP = net.IPv4(10, 0, 0, 9) // 16 bytes
	_, v6, _ := net.ParseCIDR("fd00::/64")
	table := 7
	r.IPs = append(r.IPs, &struct {
		Interface *int
		Address   net.IPNet
		Gateway   net.IP
	}{nil, *v4, net.IPv4(10, 0, 0, 1)})
	r.Routes = append(r.Routes, &struct {
		Dst      net.IPNet
		GW       net.IP
		Priority int
		Table    *int
	}{*v6, nil, 3, &table})
	r.DNS.Nameservers = []string{"10.0.0.53"}
	body, err := leangob.NewDecoder(encoded(t, r)).Decode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := dhcpResult(body.(map[string]any))
	want := &cni.Result{
		IPs:    []cni.IP{{Address: netip.MustParsePrefix("10.0.0.9/23"), Gateway: netip.MustParseAddr("10.0.0.1")}},
		Routes: []cni.Route{{Dst: netip.MustParsePrefix("fd00::/64"), Priority: 3, Table: &table}}, DNS: cni.DNS{Nameservers: []string{"10.0.0.53"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	for _, mask := range [][]byte{nil, {255, 255}, {255, 0, 255, 0}, {255, 253, 0, 0}, make([]byte, 16)} {
		if p, err := gobPrefix(map[string]any{"IP": []byte{10, 0, 0, 1}, "Mask": mask}); err == nil {
			t.Errorf("%v: %v", mask, p)
		}
	}
}

func encoded(t *testing.T, v any) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(v); err != nil {
		t.Fatal(err)
	}
	return &b
}

// standIn is a minimal third-party daemon, served by net/rpc as DHCP.
type standIn struct{ got chan StandInArgs }

// StandInArgs are the arguments of a call.
type StandInArgs struct {
	ContainerID, Netns, IfName, Args string
	StdinData                        []byte
}

// Allocate returns no address.
func (s *standIn) Allocate(a *StandInArgs, r *Result) error { s.got <- *a; return nil }

// Release fails.
func (s *standIn) Release(*StandInArgs, *struct{}) error { return fmt.Errorf("not now") }

// TestCallDHCP calls a server of net/rpc.
func TestCallDHCP(t *testing.T) {
	t.Parallel()
	got := make(chan StandInArgs, 3)
	l := serveRPC(t, &standIn{got})
	socket := l.Addr().String()
	conf := dhcpNet(`, "daemonSocketPath": "` + socket + `"`)
	mustRun(t, ours(DHCP()), call{verb: "ADD", id: "one", conf: conf, args: "IgnoreUnknown=1;A=b"})
	want := StandInArgs{"one", "/run/netns/none", "eth0", "IgnoreUnknown=1;A=b", []byte(conf)}
	if a := <-got; !reflect.DeepEqual(a, want) {
		t.Errorf("got %+v, want %+v", a, want)
	}
	for _, verb := range []string{"CHECK", "STATUS", "GC"} { // methods that the server lacks
		mustRun(t, ours(DHCP()), call{verb: verb, id: "one", conf: conf})
	}
	if a := <-got; a.ContainerID != "one" {
		t.Errorf("CHECK did not ask for the address: %+v", a)
	}
	wantMessage(t, DHCP(), call{verb: "DEL", id: "one", conf: conf}, cni.CodeGeneric, "not now")
	l.Close()
	away := "no DHCP daemon answers at " + socket + ": "
	for verb, code := range map[string]uint{"ADD": cni.CodeTryAgainLater, "CHECK": cni.CodeTryAgainLater, "STATUS": cni.CodePluginNotAvailable} {
		c, out := ours(DHCP())(t, call{verb: verb, id: "one", conf: conf})
		if n, msg := message(t, out); c == 0 || n != code || !strings.HasPrefix(msg, away) {
			t.Errorf("%s: %s", verb, out)
		}
	}
	mustRun(t, ours(DHCP()), call{verb: "DEL", id: "one", conf: conf})
	mustRun(t, ours(DHCP()), call{verb: "GC", conf: conf})
}

// generous is a daemon that assigns two IPv6 addresses.
type generous struct{ released chan string }

// Allocate returns two addresses.
func (g *generous) Allocate(_ *StandInArgs, r *Result) error {
	for _, text := range []string{"fd00::9", "fd00::a"} {
		ip := &struct {
			Interface *int
			Address   net.IPNet
			Gateway   net.IP
		}{Address: net.IPNet{IP: net.ParseIP(text), Mask: net.CIDRMask(64, 128)}}
		r.IPs = append(r.IPs, ip)
	}
	return nil
}

// Release notes the container.
func (g *generous) Release(a *StandInArgs, _ *struct{}) error {
	g.released <- a.ContainerID
	return nil
}

// TestDHCPAddReleases checks that an ADD that cannot use the lease releases it: its caller does not know of the lease.
func TestDHCPAddReleases(t *testing.T) {
	t.Parallel()
	g := &generous{make(chan string, 1)}
	socket := serveRPC(t, g).Addr().String()
	conf := strings.Replace(dhcpNet(`, "daemonSocketPath": "`+socket+`"`), "1.1.0", "0.2.0", 1)
	wantMessage(t, DHCP(), call{verb: "ADD", id: "one", conf: conf}, cni.CodeInvalidNetworkConfig, `cniVersion "0.2.0" does not support more than 1 address per family: want 0.3.0 or newer`)
	select {
	case id := <-g.released:
		if id != "one" {
			t.Errorf("released %s", id)
		}
	default:
		t.Error("the lease was not released")
	}
}

// serveRPC serves a DHCP daemon at a socket until the test ends.
func serveRPC(t *testing.T, daemon any) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := rpc.NewServer()
	if err := s.RegisterName("DHCP", daemon); err != nil {
		t.Fatal(err)
	}
	go acceptRPC(l, s)
	return l
}

// acceptRPC serves RPC over HTTP as net/rpc does.
func acceptRPC(l net.Listener, s *rpc.Server) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			b := make([]byte, 1)
			for line := ""; !strings.HasSuffix(line, "\n\n"); line += string(b) {
				if _, err := c.Read(b); err != nil {
					return
				}
			}
			fmt.Fprint(c, "HTTP/1.0 200 Connected to Go RPC\n\n")
			s.ServeConn(c)
		}()
	}
}

// TestInvalidDHCPAnswers calls a server that is not a DHCP daemon.
func TestInvalidDHCPAnswers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                "EOF",
		"HTTP/1.0 404 Not Found\n\n":      `it rejects the connection: "HTTP/1.0 404 Not Found"`,
		"HTTP/1.0 200 OK\n\n":             "it closed the connection before it answered",
		"HTTP/1.0 200 OK\n\n\x05\x0c":     "unexpected EOF",
		"HTTP/1.0 200 OK\n\nnot gob here": "unexpected EOF",
	} {
		socket := filepath.Join(t.TempDir(), "s")
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, text)
			_ = c.(*net.UnixConn).CloseWrite()
			_, _ = c.Read(make([]byte, 4096))
			_, _ = c.Read(make([]byte, 4096))
			c.Close()
		}()
		_, out := ours(DHCP())(t, call{verb: "ADD", id: "one", conf: dhcpNet(`, "daemonSocketPath": "` + socket + `"`)})
		if _, msg := message(t, out); !strings.Contains(msg, want) || !strings.Contains(msg, "the DHCP daemon at "+socket) {
			t.Errorf("%q: %s", text, msg)
		}
		l.Close()
	}
}
