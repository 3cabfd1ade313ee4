package wire_test

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/wire"
)

func ptr(n int) *int { return &n }

// full returns a result in which every field is set somewhere.
func full() *cni.Result {
	return &cni.Result{
		Interfaces: []cni.Interface{
			{Name: "br0", Mac: "02:00:00:00:00:01"},
			{Name: "eth0", Mac: "02:00:00:00:00:02", MTU: 1400, Sandbox: "/run/netns/a", SocketPath: "/run/s", PciID: "0000:00:1f.6"},
		},
		IPs: []cni.IP{
			{Interface: ptr(1), Address: netip.MustParsePrefix("10.1.0.2/24"), Gateway: netip.MustParseAddr("10.1.0.1")},
			{Address: netip.MustParsePrefix("10.1.1.2/24")},
			{Interface: ptr(0), Address: netip.MustParsePrefix("fd00::2/64"), Gateway: netip.MustParseAddr("fd00::1")},
		},
		Routes: []cni.Route{
			{Dst: netip.MustParsePrefix("0.0.0.0/0")},
			{Dst: netip.MustParsePrefix("10.9.0.0/16"), GW: netip.MustParseAddr("10.1.0.9"), MTU: 1300, AdvMSS: 1200, Priority: 5, Table: ptr(100), Scope: ptr(253)},
			{Dst: netip.MustParsePrefix("::/0")},
		},
		DNS: cni.DNS{Nameservers: []string{"1.1.1.1"}, Domain: "d", Search: []string{"s"}, Options: []string{"a\"<é"}},
	}
}

const (
	dns        = `"dns":{"nameservers":["1.1.1.1"],"domain":"d","search":["s"],"options":["a\"<é"]}`
	routes     = `"routes":[{"dst":"0.0.0.0/0"},{"dst":"10.9.0.0/16","gw":"10.1.0.9","mtu":1300,"advmss":1200,"priority":5,"table":100,"scope":253},{"dst":"::/0"}]`
	old        = `"ip4":{"ip":"10.1.0.2/24","gateway":"10.1.0.1","routes":[{"dst":"0.0.0.0/0"},{"dst":"10.9.0.0/16","gw":"10.1.0.9"}]},"ip6":{"ip":"fd00::2/64","gateway":"fd00::1","routes":[{"dst":"::/0"}]}`
	interfaces = `"interfaces":[{"name":"br0","mac":"02:00:00:00:00:01"},{"name":"eth0","mac":"02:00:00:00:00:02","sandbox":"/run/netns/a"}]`
	versioned  = `"ips":[{"version":"4","interface":1,"address":"10.1.0.2/24","gateway":"10.1.0.1"},{"version":"4","address":"10.1.1.2/24"},{"version":"6","interface":0,"address":"fd00::2/64","gateway":"fd00::1"}]`
	ips        = `"ips":[{"interface":1,"address":"10.1.0.2/24","gateway":"10.1.0.1"},{"address":"10.1.1.2/24"},{"interface":0,"address":"fd00::2/64","gateway":"fd00::1"}]`
	newest     = `"interfaces":[{"name":"br0","mac":"02:00:00:00:00:01"},{"name":"eth0","mac":"02:00:00:00:00:02","mtu":1400,"sandbox":"/run/netns/a","socketPath":"/run/s","pciID":"0000:00:1f.6"}]`
)

// TestOwnKeysBefore100 verifies that keys of a plugin's own are ignored, whatever their type, in versions that do not
// have them.
func TestOwnKeysBefore100(t *testing.T) {
	t.Parallel()
	const result = `{"interfaces":[{"name":"eth0","mtu":"1400","socketPath":{},"pciID":7}],"ips":[{"version":"4","address":"10.1.0.2/24"}]}`
	for _, version := range []string{"0.3.0", "0.3.1", "0.4.0"} {
		r, err := wire.Decode(version, []byte(result))
		if err != nil || !reflect.DeepEqual(r.Interfaces, []cni.Interface{{Name: "eth0"}}) {
			t.Errorf("%s: got %+v, %v", version, r, err)
		}
	}
	if _, err := wire.Decode("1.0.0", []byte(result)); err == nil || !strings.Contains(err.Error(), "want a whole number") {
		t.Errorf("1.0.0: %v", err)
	}
}

func TestEncodeEveryVersion(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ version, full, empty string }{
		{"0.1.0", old + "," + dns, `,"dns":{}`},
		{"0.2.0", old + "," + dns, `,"dns":{}`},
		{"0.3.0", interfaces + "," + versioned + "," + routes + "," + dns, `,"dns":{}`},
		{"0.3.1", interfaces + "," + versioned + "," + routes + "," + dns, `,"dns":{}`},
		{"0.4.0", interfaces + "," + versioned + "," + routes + "," + dns, `,"dns":{}`},
		{"1.0.0", newest + "," + ips + "," + routes + "," + dns, ``},
		{"1.1.0", newest + "," + ips + "," + routes + "," + dns, ``},
	} {
		head := `{"cniVersion":"` + tt.version + `"`
		sameJSON(t, mustEncode(t, full(), tt.version), head+","+tt.full+"}")
		sameJSON(t, mustEncode(t, nil, tt.version), head+tt.empty+"}")
	}
}

// TestEncodeUnset checks that the zero value of an address is an error: a runtime could not read its text.
func TestEncodeUnset(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]*cni.Result{
		"encode result: ips[0].address is not set": {IPs: []cni.IP{{}}},
		"encode result: routes[0].dst is not set":  {Routes: []cni.Route{{GW: netip.MustParseAddr("10.1.0.1")}}},
	} {
		if out, err := wire.Encode(r, "1.1.0"); err == nil || err.Error() != want {
			t.Errorf("got %s and %v, want %s", out, err, want)
		}
	}
}

func mustEncode(t *testing.T, r *cni.Result, version string) []byte {
	t.Helper()
	data, err := wire.Encode(r, version)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func sameJSON(t *testing.T, got []byte, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("%s: %v", want, err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Decoding restores what a version can encode.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, version := range cni.Versions() {
		first := mustEncode(t, full(), version)
		r, err := wire.Decode("", first)
		if err != nil {
			t.Fatal(err)
		}
		if r.CNIVersion != version {
			t.Errorf("decoded as %s, want %s", r.CNIVersion, version)
		}
		sameJSON(t, mustEncode(t, r, version), string(first))
	}
	r, err := wire.Decode("", mustEncode(t, full(), "1.1.0"))
	r.CNIVersion = ""
	if err != nil || !reflect.DeepEqual(r, full()) {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestDecodeLenient(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, version, data, want string }{
		{"version of the configuration", "0.4.0", `{}`, `{"cniVersion":"0.4.0","dns":{}}`},
		{"none at all", "", `{"ip4":{"ip":"10.1.0.2/24"}}`, `{"cniVersion":"0.1.0","ip4":{"ip":"10.1.0.2/24"},"dns":{}}`},
		{"its own wins", "0.4.0", `{"cniVersion":"1.0.0"}`, `{"cniVersion":"1.0.0"}`},
		{"unknown keys", "1.0.0", `{"x":{"y":[1]},"ips":[{"z":1,"address":"10.1.0.2/24"}]}`, `{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.2/24"}]}`},
		{"nulls", "1.0.0", `{"interfaces":null,"ips":[{"address":"10.1.0.2/24","gateway":null,"interface":null}],"dns":null,"routes":null}`, `{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.2/24"}]}`},
		{"case", "1.0.0", `{"IPs":[{"Address":"10.1.0.2/24"}]}`, `{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.2/24"}]}`},
		{"no gateway", "1.0.0", `{"ips":[{"address":"10.1.0.2/24","gateway":""}]}`, `{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.2/24"}]}`},
		{"mapped", "1.0.0", `{"ips":[{"address":"::ffff:10.1.0.2/120"}]}`, `{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.2/24"}]}`},
		{"new form, old version", "0.2.0", `{"interfaces":[{"name":"lo"}]}`, `{"cniVersion":"0.2.0","dns":{}}`},
		{"null family", "0.2.0", `{"ip4":null,"ip6":{"ip":"fd00::2/64"}}`, `{"cniVersion":"0.2.0","ip6":{"ip":"fd00::2/64"},"dns":{}}`},
	} {
		r, err := wire.Decode(tt.version, []byte(tt.data))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		sameJSON(t, mustEncode(t, r, ""), tt.want)
	}
}

func TestDecodeErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ data, want string }{
		{``, "empty: want a JSON object"},
		{`[]`, "1:1: want an object"},
		{`{"ips":`, "the text ends too early"},
		{`{"cniVersion":"2.0.0"}`, `version "2.0.0" of the specification is not supported`},
		{`{"cniVersion":1}`, "cniVersion = 1: want a string"},
		{`{"ips":{}}`, "1:8: ips = {}: want a list of objects"},
		{`{"ips":[1]}`, "1:9: ips[0] = 1: want an object"},
		{`{"ips":[{}]}`, "1:9: ips[0].address: want an address with its prefix length"},
		{`{"ips":[{"address":"10.1.0.2"}]}`, `1:20: ips[0].address = "10.1.0.2": want an address with`},
		{`{"ips":[{"address":"10.1.0.2/8","gateway":"x"}]}`, `ips[0].gateway = "x": want an address, like`},
		{`{"routes":[{"dst":"::/0","mtu":"9"}]}`, `routes[0].mtu = "9": want a whole number`},
		{`{"dns":{"search":["a",1]}}`, `dns.search = ["a",1]: want a list of strings`},
		{`{"cniVersion":"0.2.0","ip4":{}}`, "ip4.ip: want an address with its prefix length"},
		{`{"cniVersion":"0.2.0","ip4":{"ip":"1.2.3.4/8","routes":[{"dst":1}]}}`, "ip4.routes[0].dst = 1: want a string"},
	} {
		_, err := wire.Decode("1.0.0", []byte(tt.data))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.data, err, tt.want)
		}
	}
	if _, err := wire.Encode(nil, "3.0.0"); err == nil {
		t.Error("version 3.0.0 was encoded")
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	data := wire.EncodeVersions(cni.Current, cni.Versions())
	current, supported, err := wire.DecodeVersions(data)
	if err != nil || current != cni.Current || !slices.Equal(supported, cni.Versions()) {
		t.Errorf("%s came back as %s, %v, %v", data, current, supported, err)
	}
	_, supported, err = wire.DecodeVersions([]byte(`{"cniVersion":"0.2.0"}`))
	if err != nil || len(supported) != 2 {
		t.Errorf("0.2.0: got %v, %v", supported, err)
	}
	for _, bad := range []string{``, `{}`, `{"cniVersion":"1.0.0"}`, `{"cniVersion":1}`} {
		if _, _, err := wire.DecodeVersions([]byte(bad)); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

// Whatever decodes can be encoded, and decodes to the same result again.
func FuzzDecode(f *testing.F) {
	for _, v := range cni.Versions() {
		data, _ := wire.Encode(full(), v)
		f.Add(v, data)
	}
	f.Add("0.4.0", []byte(`{"ips":[{"address":"::ffff:1.2.3.4/96"}],"dns":{"search":["\u2028"]}}`))
	f.Fuzz(func(t *testing.T, version string, data []byte) {
		r, err := wire.Decode(version, data)
		if err != nil {
			return
		}
		first, err := wire.Encode(r, "")
		if err != nil {
			t.Fatal(err)
		}
		again, err := wire.Decode("", first)
		if err != nil {
			t.Fatalf("%s: %v", first, err)
		}
		second, err := wire.Encode(again, "")
		if err != nil || string(first) != string(second) {
			t.Fatalf("got\n%s\nthen\n%s\n%v", first, second, err)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	data, _ := wire.Encode(full(), "1.1.0")
	for b.Loop() {
		if _, err := wire.Decode("", data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	r := full()
	for b.Loop() {
		if _, err := wire.Encode(r, "1.1.0"); err != nil {
			b.Fatal(err)
		}
	}
}
