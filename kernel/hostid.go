package kernel

import (
	"strings"

	"github.com/fairlead/fairlead/internal/plainfile"
)

// HostID tells this host from others: its machine ID, or else its boot ID.
func HostID() string {
	for _, f := range []string{"/etc/machine-id", "/proc/sys/kernel/random/boot_id"} {
		if raw, err := plainfile.Read(f); err == nil && len(raw) > 1 {
			return strings.TrimSpace(string(raw))
		}
	}
	return ""
}
