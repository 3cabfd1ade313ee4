package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

// flannelNode returns flannel's annotations from "NAME=VALUE" words, with the mark of flanneld.
func flannelNode(prefix string, words ...string) map[string]string {
	out := map[string]string{"kubernetes.io/other": "x", prefix + "kube-subnet-manager": "true"}
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		out[prefix+name] = value
	}
	return out
}

// The annotations that flanneld v0.28.9 wrote: VXLAN with both families, and host-gw.
var (
	writtenVXLAN  = []string{"backend-type=vxlan", `backend-data={"VNI":1,"VtepMAC":"de:44:8e:3b:1f:da"}`, `backend-v6-data={"VNI":1,"VtepMAC":"de:44:8e:3b:1f:db"}`, "public-ip=198.18.0.2", "public-ipv6=2001:db8::2"}
	writtenHostGW = []string{"backend-type=host-gw", "backend-data=null", "public-ip=198.18.0.2"}

	// Flannel's WireGuard backend writes its key for each family, and with both families reads the one for IPv6.
	writtenWireGuard = []string{"backend-type=wireguard", `backend-data={"PublicKey":"k"}`, `backend-v6-data={"PublicKey":"k"}`, "public-ip=198.18.0.2", "public-ipv6=2001:db8::2"}
)

func TestFlannelAnnotations(t *testing.T) {
	t.Parallel()
	for prefix, name := range map[string]string{
		DefaultFlannelAnnotations: "flannel.alpha.coreos.com/", "example.com/net": "example.com/net-", "example.com/net-": "example.com/net-", "example.com/": "example.com/",
	} {
		f := NewFlannelAnnotations(prefix)
		for _, words := range [][]string{writtenVXLAN, writtenHostGW, writtenWireGuard} {
			have := flannelNode(name, words...)
			l, err := f.lease(have)
			if err != nil || !f.Match(l, have) || f.Match(nil, have) {
				t.Errorf("%s: %v is read as %+v, %v, which does not match", prefix, have, l, err)
			}
			if n := f.Parse(have); n == nil || n.Flannel.Problem != "" || n.Addresses[0].Addr() != netip.MustParseAddr("198.18.0.2") {
				t.Errorf("%s: %v is read as %+v", prefix, have, n)
			}
		}
	}
	f, none := NewFlannelAnnotations(DefaultFlannelAnnotations), map[string]string{"kubernetes.io/other": "x"}
	six := flannelNode("flannel.alpha.coreos.com/", "backend-type=wireguard", `backend-v6-data={"PublicKey":"k"}`, "public-ipv6=2001:db8::2")
	if n := f.Parse(six); n == nil || n.Flannel.Key != "k" {
		t.Errorf("a Node with IPv6 only is read as %+v", n)
	}
	if n := f.Parse(none); n != nil || !f.Match(nil, none) {
		t.Errorf("a Node without flannel is read as %+v", n)
	}
	for name, value := range f.Of(nil) { // a merge patch removes each
		if value != nil {
			t.Errorf("%s is %v, want null", name, value)
		}
	}
}

// TestOddFlannelAnnotations checks what other agents use of each node.
func TestOddFlannelAnnotations(t *testing.T) {
	t.Parallel()
	const mac = `{"VNI":1,"VtepMAC":"de:44:8e:3b:1f:da"}`
	const overwritten = "vxlan [198.18.0.2/32] de:44:8e:3b:1f:da," // flanneld has not written the other address yet
	f := NewFlannelAnnotations(DefaultFlannelAnnotations)
	for _, c := range []struct{ have, want string }{
		{"", "problem: the annotation flannel.alpha.coreos.com/backend-type is missing"},
		{"kube-subnet-manager=false backend-type=vxlan public-ip=198.18.0.2", "none"},
		{"kube-subnet-manager= backend-type=vxlan public-ip=198.18.0.2", "none"},
		{"backend-type=vxlan", "problem: the annotations flannel.alpha.coreos.com/public-ip and flannel.alpha.coreos.com/public-ipv6 are missing"},
		{"backend-type=vxlan public-ip= backend-data=" + mac, "problem: the annotations"},
		{"backend-type=vxlan public-ip=198.18.0.2 backend-data=" + mac, "vxlan [198.18.0.2/32] de:44:8e:3b:1f:da,"},
		{"backend-type=vxlan public-ip=198.18.0.2 public-ip-overwrite=203.0.113.2 backend-data=" + mac, overwritten},
		{`backend-type=vxlan public-ip=198.18.0.2 backend-data={"VtepMAC":"de:44:8e:3b:1f:da"}`, "vxlan [198.18.0.2/32] de:44:8e:3b:1f:da,"},
		{`backend-type=vxlan public-ip=198.18.0.2 backend-data={"VNI":1}`, "vxlan [198.18.0.2/32] ,"}, // the backend reports it
		{"backend-type=vxlan public-ip=198.18.0.2", "vxlan [198.18.0.2/32] ,"},
		{"backend-type=vxlan public-ip=198.18.0.2 backend-data={", `problem: the annotation flannel.alpha.coreos.com/backend-data is "{"`},
		{`backend-type=vxlan public-ip=198.18.0.2 backend-data={"VNI":"1"}`, "problem: the annotation flannel.alpha.coreos.com/backend-data"},
		{"backend-type=vxlan public-ip=198.18.0.2 backend-data=" + mac + "x", "problem: the annotation flannel.alpha.coreos.com/backend-data"},
		{"backend-type=vxlan public-ipv6=2001:db8::2 backend-v6-data=" + mac, "vxlan [2001:db8::2/128] ,de:44:8e:3b:1f:da"},
		{"backend-type=vxlan public-ip=2001:db8::2", `problem: the annotation flannel.alpha.coreos.com/public-ip is "2001:db8::2"`},
		{"backend-type=vxlan public-ipv6=198.18.0.2", `problem: the annotation flannel.alpha.coreos.com/public-ipv6 is "198.18.0.2"`},
		{"backend-type=vxlan public-ipv6=2001:db8::2%eth0", "problem: the annotation flannel.alpha.coreos.com/public-ipv6"},
		{"backend-type=vxlan public-ip=198.18.0", "problem: the annotation flannel.alpha.coreos.com/public-ip"},
		{"backend-type=vxlan public-ip=127.0.0.1 backend-data=" + mac, "problem: the address 127.0.0.1 cannot be a node's address: 127.0.0.0/8 is loopback"},
		{`backend-type=wireguard public-ip=198.18.0.2 backend-data={"PublicKey":"k"}`, "wireguard [198.18.0.2/32] ,"},
		{"backend-type=udp public-ip=198.18.0.2 backend-data=null", "udp [198.18.0.2/32] ,"}, // the backends report it
	} {
		n, got := f.Parse(flannelNode("flannel.alpha.coreos.com/", strings.Fields(c.have)...)), "none"
		if n != nil {
			got = fmt.Sprintf("%s %v %s,%s", n.Flannel.Type, n.Addresses, n.Flannel.MAC, n.Flannel.V6)
			if n.Flannel.Problem != "" {
				got = "problem: " + n.Flannel.Problem
			}
		}
		if got != c.want && !(strings.HasPrefix(c.want, "problem: ") && strings.HasPrefix(got, c.want)) {
			t.Errorf("%s is read as %q, want %q", c.have, got, c.want)
		}
	}
}

func FuzzFlannelAnnotations(f *testing.F) {
	f.Add("vxlan", `{"VNI":1,"VtepMAC":"de:44:8e:3b:1f:da"}`, `{"VNI":1,"VtepMAC":"de:44:8e:3b:1f:db"}`, "198.18.0.2", "2001:db8::2")
	f.Add("host-gw", "null", "", "198.18.0.2", "")
	f.Add("wireguard", `{"PublicKey":"k"}`, "null", "198.18.0.2", "fd00::2")
	f.Add("vxlan", "{", `{"VNI":-1}`, "127.0.0.1", "::1")
	names := NewFlannelAnnotations(DefaultFlannelAnnotations)
	f.Fuzz(func(t *testing.T, typ, data, data6, ip, ip6 string) {
		typ = strings.ToValidUTF8(typ, "?") // as in every text from the API
		data, data6 = strings.ToValidUTF8(data, "?"), strings.ToValidUTF8(data6, "?")
		have := map[string]string{names.managed: "true", names.typ: typ, names.data: data, names.data6: data6, names.ip: ip, names.ip6: ip6}
		n := names.Parse(have)
		if n == nil || n.Flannel.Problem == "" && len(n.Addresses) == 0 {
			t.Fatalf("%v is read as %+v", have, n)
		}
		l, err := names.lease(have)
		if err != nil {
			return
		}
		written := map[string]string{}
		for name, value := range names.Of(l) {
			if value != nil {
				written[name] = value.(string)
			}
		}
		again, err := names.lease(written)
		if err != nil || !names.Match(again, written) {
			t.Errorf("%+v is written as %v, which is read as %+v, %v", l, written, again, err)
		}
		raw, err := json.Marshal(l)
		var copied FlannelLease
		if err == nil {
			err = json.Unmarshal(raw, &copied)
		}
		if err != nil || !maps.Equal(names.Of(&copied), names.Of(l)) || !reflect.DeepEqual(copied.Node().Addresses, l.Node().Addresses) {
			t.Errorf("%+v is %s in a node's document, %v", l, raw, err)
		}
	})
}
