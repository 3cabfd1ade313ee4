package cluster

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

// Written by flanneld v0.28.9.
const written = `{"PublicIP":"198.18.0.2","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"de:44:8e:3b:1f:da"}}`

func TestFlannelLease(t *testing.T) {
	t.Parallel()
	four, six := netip.MustParsePrefix("10.244.57.0/24"), netip.MustParsePrefix("fd00:244:0:3::/64")
	ip, ip6 := netip.MustParseAddr("198.18.0.2"), netip.MustParseAddr("2001:db8::2")
	for _, c := range []struct {
		key, value string
		want       FlannelLease
	}{
		{"flannel/subnets/10.244.57.0-24", written, FlannelLease{Subnets: []netip.Prefix{four}, PublicIP: ip, Type: "vxlan", VNI: 1, MAC: "de:44:8e:3b:1f:da"}},
		{"flannel/subnets/10.244.57.0-24&fd00:244:0:3::-64",
			`{"PublicIP":"198.18.0.2","PublicIPv6":"2001:db8::2","BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"de:44:8e:3b:1f:da"},"BackendV6Data":{"VNI":1,"VtepMAC":"de:44:8e:3b:1f:db"}}`,
			FlannelLease{Subnets: []netip.Prefix{four, six}, PublicIP: ip, PublicIPv6: ip6, Type: "vxlan", VNI: 1, MAC: "de:44:8e:3b:1f:da", MAC6: "de:44:8e:3b:1f:db"}},
		{"flannel/subnets/10.244.57.0-24", `{"PublicIP":"198.18.0.2","PublicIPv6":null,"BackendType":"host-gw"}`, FlannelLease{Subnets: []netip.Prefix{four}, PublicIP: ip, Type: "host-gw"}},
		{"flannel/subnets/10.244.57.0-24", `{"PublicIP":"198.18.0.2","PublicIPv6":null,"BackendType":"wireguard","BackendData":{"PublicKey":"k"},"Fairlead":"n"}`,
			FlannelLease{Subnets: []netip.Prefix{four}, PublicIP: ip, Type: "wireguard", PublicKey: "k", FairleadNode: "n"}},
		{"flannel/subnets/10.244.57.0-24&fd00:244:0:3::-64",
			`{"PublicIP":"198.18.0.2","PublicIPv6":"2001:db8::2","BackendType":"wireguard","BackendData":{"PublicKey":"k"},"BackendV6Data":{"PublicKey":"k"}}`,
			FlannelLease{Subnets: []netip.Prefix{four, six}, PublicIP: ip, PublicIPv6: ip6, Type: "wireguard", PublicKey: "k"}},
	} {
		got, err := ParseFlannelLease(c.key, []byte(c.value))
		if err != nil || !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%s %s is\n%+v, %v; want\n%+v", c.key, c.value, got, err, c.want)
			continue
		}
		if v, err := got.Value(); err != nil || string(v) != c.value || got.Key() != c.key {
			t.Errorf("%s %s is written as %s %s, %v", c.key, c.value, got.Key(), v, err)
		}
	}
}

func TestInvalidFlannelLease(t *testing.T) {
	t.Parallel()
	for key, row := range map[string][2]string{
		"flannel/subnets/10.244.57.0":    {written, "is not a flannel subnet"},
		"flannel/subnets/10.244.57.1-24": {written, "is not a flannel subnet"},
		"flannel/other/10.244.57.0-24":   {written, "is not a flannel subnet"},
		"flannel/subnets/10.244.58.0-24": {`{"PublicIP": 7}`, "read flannel/subnets/"},
		"flannel/subnets/10.244.59.0-24": {`{"BackendType":"vxlan"}`, "has no PublicIP"},
	} {
		if _, err := ParseFlannelLease(key, []byte(row[0])); err == nil || !strings.Contains(err.Error(), row[1]) {
			t.Errorf("%s: %v, want %s", key, err, row[1])
		}
	}
	s := NewSnapshot()
	s.Set("flannel/config", []byte(`{"Network": "10.244.0.0/16"}`))
	s.Set("flannel/subnets/10.244.57.0-24", []byte(written))
	if len(s.Problems) != 0 || len(s.Flannel) != 1 || s.LeasedBy(netip.MustParsePrefix("10.244.57.64/26")) == nil || s.LeasedBy(netip.MustParsePrefix("10.244.58.0/24")) != nil {
		t.Errorf("the snapshot has %v and problems %v", s.Flannel, s.Problems)
	}
	self := &Node{Name: "n", Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.0.2/24")}}
	if l := s.LeaseOf(self); l == nil || s.LeaseOf(&Node{Name: "o"}) != nil {
		t.Errorf("the node's lease is %v", l)
	}
	s.Set("flannel/subnets/10.244.57.0-24", nil)
	if len(s.Flannel) != 0 {
		t.Error("a lease that was deleted is there")
	}
}

func FuzzFlannelLease(f *testing.F) {
	f.Add("flannel/subnets/10.244.57.0-24&fd00::-64", []byte(written))
	f.Add("flannel/subnets/100::-64", []byte(`{"PublicIP":"198.18.0.2","BackendType":"vxlan","BackendData":{"VNI":1}}`))
	f.Add("flannel/subnets/100::-64", []byte(`{"PublicIPv6":"2001:db8::2","BackendV6Data":{"VNI":-1,"VtepMAC":"de:44:8e:3b:1f:da"}}`))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		l, err := ParseFlannelLease(key, value)
		if err != nil {
			return
		}
		again, err := l.Value()
		if err != nil {
			t.Fatal(err)
		}
		if m, err := ParseFlannelLease(l.Key(), again); err != nil || !reflect.DeepEqual(l, m) {
			t.Errorf("%+v is read again as %+v, %v", l, m, err)
		}
	})
}
