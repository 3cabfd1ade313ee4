package kernel

import (
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/plainfile"
	"golang.org/x/sys/unix"
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

// Uptime is the time since the machine started, suspension included. Unlike the
// time of day nobody can set it, so it tells what came first within a boot.
func Uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("clock_gettime: " + err.Error()) // Linux has it since 2.6.39
	}
	return time.Duration(ts.Nano())
}
