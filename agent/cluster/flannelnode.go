package cluster

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
)

// FlannelAnnotations are the names of flannel's annotations of a Kubernetes Node, where flanneld with --kube-subnet-mgr
// has its leases.
type FlannelAnnotations struct{ managed, typ, data, data6, ip, ip6 string }

// DefaultFlannelAnnotations is the default of flanneld's --kube-annotation-prefix.
const DefaultFlannelAnnotations = "flannel.alpha.coreos.com"

// NewFlannelAnnotations returns the names for a value of flanneld's --kube-annotation-prefix.
func NewFlannelAnnotations(prefix string) *FlannelAnnotations {
	if !strings.Contains(prefix, "/") {
		prefix += "/"
	}
	if !strings.HasSuffix(prefix, "/") && !strings.HasSuffix(prefix, "-") {
		prefix += "-"
	}
	return &FlannelAnnotations{
		managed: prefix + "kube-subnet-manager", typ: prefix + "backend-type", data: prefix + "backend-data",
		data6: prefix + "backend-v6-data", ip: prefix + "public-ip", ip6: prefix + "public-ipv6",
	}
}

// noData is the value with which flanneld writes that a backend needs no data.
const noData = "null"

// Of returns a lease as annotations, in the form in which flanneld v0.28 writes and compares them. The value of an
// annotation that the Node must not have is nil, so that the result is a merge patch; a nil lease needs none at all.
func (f *FlannelAnnotations) Of(l *FlannelLease) map[string]any {
	out := map[string]any{f.managed: nil, f.typ: nil, f.data: nil, f.data6: nil, f.ip: nil, f.ip6: nil}
	if l == nil {
		return out
	}
	out[f.managed], out[f.typ] = "true", l.Type
	for _, x := range []struct {
		ip      netip.Addr
		mac     string
		key     string
		address string
		data    string
	}{{l.PublicIP, l.MAC, l.PublicKey, f.ip, f.data}, {l.PublicIPv6, l.MAC6, l.publicKey6(), f.ip6, f.data6}} {
		if !x.ip.IsValid() {
			continue
		}
		out[x.address], out[x.data] = x.ip.String(), noData
		if x.mac != "" || x.key != "" {
			raw, _ := json.Marshal(leaseOfTunnel{l.VNI, x.mac, x.key}) // numbers and strings
			out[x.data] = string(raw)
		}
	}
	return out
}

// Match reports whether a Node has exactly the annotations of a lease.
func (f *FlannelAnnotations) Match(l *FlannelLease, have map[string]string) bool {
	for name, want := range f.Of(l) {
		if text, has := have[name]; want == nil && has || want != nil && text != want {
			return false
		}
	}
	return true
}

// Parse returns the flannel node that a Node's annotations describe, without a name; nil if flanneld does not manage the
// Node. Invalid annotations are its Problem.
func (f *FlannelAnnotations) Parse(have map[string]string) *Node {
	if have[f.managed] != "true" {
		return nil
	}
	l, err := f.lease(have)
	if err != nil {
		return &Node{Flannel: &FlannelNode{Type: have[f.typ], Problem: err.Error()}}
	}
	n := l.Node()
	n.Name = ""
	return n
}

// lease reads the annotations. A missing or invalid hardware address is a problem of its address family only, which the
// backend reports. Like flanneld, it does not compare the VNI.
func (f *FlannelAnnotations) lease(have map[string]string) (*FlannelLease, error) {
	d := leaseDocument{BackendType: have[f.typ]}
	for _, x := range []struct {
		address, data string
		ip            **netip.Addr
		tunnel        **leaseOfTunnel
		six           bool
	}{{f.ip, f.data, &d.PublicIP, &d.BackendData, false}, {f.ip6, f.data6, &d.PublicIPv6, &d.BackendV6Data, true}} {
		if text := have[x.address]; text != "" {
			a, err := netip.ParseAddr(text)
			if err != nil || a.Is6() != x.six || a.Zone() != "" {
				return nil, fmt.Errorf("the annotation %s is %q: want an address of this family", x.address, text)
			}
			*x.ip = &a
		}
		if text := have[x.data]; text != "" {
			if err := json.Unmarshal([]byte(text), x.tunnel); err != nil {
				return nil, fmt.Errorf("the annotation %s is %q: %w", x.data, text, err)
			}
		}
	}
	l := &FlannelLease{}
	l.set(&d)
	switch {
	case l.Type == "":
		return nil, fmt.Errorf("the annotation %s is missing", f.typ)
	case !l.PublicIP.IsValid() && !l.PublicIPv6.IsValid():
		return nil, fmt.Errorf("the annotations %s and %s are missing", f.ip, f.ip6)
	}
	return l, l.checkAddresses()
}
