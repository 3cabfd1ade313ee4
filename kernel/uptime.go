package kernel

import (
	"time"

	"golang.org/x/sys/unix"
)

// Uptime is the time since the machine started, suspension included. Unlike the
// time of day nobody can set it, so it tells what came first within a boot.
func Uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("clock_gettime: " + err.Error()) // Linux has it since 2.6.39
	}
	return time.Duration(ts.Nano())
}
