package security

import (
	"fmt"
	"strings"
	"testing"
)

// TestSysctlKeys checks that tuning rejects sysctl keys that lead outside /proc/sys/net.
func TestSysctlKeys(t *testing.T) {
	for _, key := range []string{
		"../../etc/passwd", "net/../kernel/core_pattern", "net.ipv4.conf.IFNAME/../../../../kernel/core_pattern", "kernel.core_pattern",
		"/kernel/core_pattern", "net/../../sysrq-trigger", "net..kernel", "vm.overcommit_memory", "net/./core/somaxconn", "", "net", "net/",
		"kernel/../net/core/somaxconn", "fs.suid_dumpable",
	} {
		t.Run(strings.ReplaceAll(key, "/", "_"), func(t *testing.T) {
			t.Parallel()
			c := pluginCase{plugin: "tuning", conf: fmt.Sprintf(`"sysctl": {%q: "1"}`, key), chain: true}
			m := c.prepare(t)
			out, err := m.run("ADD", "tuning", "a", c.text(m))
			if err == nil || !strings.Contains(out, "want a key of the network namespace") && !strings.Contains(out, "want names separated by dots") {
				t.Errorf("ADD printed %s", out)
			}
		})
	}
}
