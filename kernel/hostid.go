package kernel

import (
	"os"
	"strings"
)

// HostID tells this host from others: its machine ID, or else its boot ID.
func HostID() string {
	for _, f := range []string{"/etc/machine-id", "/proc/sys/kernel/random/boot_id"} {
		if raw, err := os.ReadFile(f); err == nil && len(raw) > 1 {
			return strings.TrimSpace(string(raw))
		}
	}
	return ""
}
