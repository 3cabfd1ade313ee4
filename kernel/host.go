package kernel

import (
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/bootid"
	"github.com/fairlead/fairlead/internal/plainfile"
	"golang.org/x/sys/unix"
)

// HostID returns an ID of this host: the machine ID, or else the boot ID.
func HostID() string {
	if raw, err := plainfile.Read("/etc/machine-id"); err == nil && len(raw) > 1 {
		return strings.TrimSpace(string(raw))
	}
	id, _ := bootid.Read() // "" if it cannot be read
	return id
}

// Uptime returns the time since the machine started, including suspension. Nobody can set this clock, so it orders
// events within one boot.
func Uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("clock_gettime: " + err.Error()) // exists since Linux 2.6.39
	}
	return time.Duration(ts.Nano())
}
