package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// The networks of every host. The first is the default network for CRI.
const (
	network       = "e2e"
	secondNetwork = "e2e-second"
	slowNetwork   = "e2e-slow" // its list limits the bandwidth
	recordFile    = "/run/e2e-calls"
	gatewayV4     = "10.88.0.1"
	gatewayV6     = "fd00:88::1"
	confDir       = "/etc/cni/net.d"
	slowRate      = 24_000_000 // bits per second
	slowBurst     = 1_000_000  // bits
	firstSubnetV4 = "10.88."
)

type object = map[string]any

// list returns a network list with a dual-stack bridge, the usual chained plugins, and more plugins at the end.
func list(version, name string, n int, bandwidth object, more ...object) object {
	bandwidth["type"] = "bandwidth"
	ranges := []any{
		[]any{object{"subnet": fmt.Sprintf("10.%d.0.0/16", 88+n)}},
		[]any{object{"subnet": fmt.Sprintf("fd00:%d::/64", 88+n)}},
	}
	plugins := []any{
		object{"type": "bridge", "bridge": fmt.Sprintf("e2e%d", n), "isGateway": true, "ipMasq": true, "hairpinMode": true,
			"ipam": object{"type": "host-local", "ranges": ranges, "routes": []any{object{"dst": "0.0.0.0/0"}, object{"dst": "::/0"}}}},
		object{"type": "portmap", "capabilities": object{"portMappings": true}},
		bandwidth,
		object{"type": "firewall"},
		object{"type": "tuning", "capabilities": object{"mac": true}, "sysctl": object{"net.core.somaxconn": "500"}},
	}
	for _, m := range more {
		plugins = append(plugins, m)
	}
	return object{"cniVersion": version, "name": name, "plugins": plugins}
}

// lists returns the networks of a host by file name.
func lists(version string) map[string]object {
	record := object{"type": "e2e-record", "log": recordFile,
		"capabilities": object{"portMappings": true, "bandwidth": true, "mac": true, "ips": true, "dns": true}}
	requested := func() object { return object{"capabilities": object{"bandwidth": true}} }
	slow := object{"ingressRate": slowRate, "ingressBurst": slowBurst, "egressRate": slowRate, "egressBurst": slowBurst}
	return map[string]object{
		"10-e2e.conflist":    list(version, network, 0, requested(), record),
		"20-second.conflist": list(version, secondNetwork, 1, requested(), record),
		"30-slow.conflist":   list(version, slowNetwork, 2, slow, record),
	}
}

// plainList returns the first network only, with plugins that also exist as reference plugins.
func plainList(version string) map[string]object {
	return map[string]object{"10-e2e.conflist": list(version, network, 0, object{"capabilities": object{"bandwidth": true}})}
}

// configure writes lists to the host. If fuse is not "", it fuses them with that program.
func (h *host) configure(t *testing.T, lists map[string]object, fuse string) {
	t.Helper()
	for file, l := range lists {
		raw, err := json.MarshalIndent(l, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if fuse != "" {
			plain := filepath.Join(t.TempDir(), file)
			if err := os.WriteFile(plain, raw, 0o644); err != nil {
				t.Fatal(err)
			}
			out, err := run(fuse, "fuse", plain)
			if err != nil {
				t.Fatal(err)
			}
			raw = []byte(out)
		}
		h.write(t, filepath.Join(confDir, file), string(raw))
	}
}
