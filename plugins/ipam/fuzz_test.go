package ipam

import "testing"

// FuzzHostLocalConf checks that every accepted configuration is safe to allocate from.
func FuzzHostLocalConf(f *testing.F) {
	for _, c := range hostLocalCalls() {
		f.Add(c.conf, c.args)
	}
	f.Fuzz(func(t *testing.T, conf, args string) {
		h, err := parseHostLocal([]byte(conf), args)
		if err != nil {
			return
		}
		for _, set := range h.sets {
			for _, r := range set {
				if !r.Subnet.Contains(r.Start) || !r.Subnet.Contains(r.End) || r.End.Less(r.Start) || !r.Gateway.IsValid() {
					t.Errorf("range %+v of %s", r, conf)
				}
			}
		}
	})
}

func FuzzStaticConf(f *testing.F) {
	f.Add(`{"cniVersion": "1.1.0", "ipam": {"addresses": [{"address": "10.1.2.3/24", "gateway": "10.1.2.1"}]}}`, "IP=10.1.2.4/24;GATEWAY=10.1.2.1")
	f.Add(`{"ipam": {"routes": [{"dst": "10.0.0.0/8"}]}, "runtimeConfig": {"ips": ["fd00::1/64"]}}`, "")
	f.Fuzz(func(t *testing.T, conf, args string) {
		r, err := parseStatic([]byte(conf), args)
		if err != nil {
			return
		}
		for _, ip := range r.IPs {
			if !ip.Address.IsValid() {
				t.Errorf("an invalid address of %s with %s", conf, args)
			}
		}
	})
}
