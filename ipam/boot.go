package ipam

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// clockBoottime is CLOCK_BOOTTIME of clock_gettime(2): time since boot, including suspension. Nobody can set it.
const clockBoottime = 7

// Uptime returns the time since boot.
func Uptime() time.Duration {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		panic(os.NewSyscallError("clock_gettime", errno)) // Linux has it since 2.6.39
	}
	return time.Duration(ts.Nano())
}

// reclaim frees what an earlier boot allocated: address files that its index lists as ours and that are unchanged, by
// inode and change time. All other files stay.
func (s *Store) reclaim(old *index) error {
	if err := s.clearTemporary(); err != nil {
		return err
	}
	records, err := old.all()
	if err != nil && !errors.Is(err, errInvalidIndex) {
		return err
	}
	for _, r := range records {
		ino, ctime, err := s.dir.stat(r.addr)
		if r.reserved == 0 || err != nil || ino != r.ino || ctime != r.ctime {
			continue
		}
		if err := s.remove(r.addr); err != nil {
			return err
		}
	}
	return s.reclaimPending(old.header)
}

// reclaimPending frees an address whose record was never written, because its process was killed.
func (s *Store) reclaimPending(h header) error {
	if err := s.removeTorn(h); err != nil {
		return err
	}
	if h.clean || !h.pending.addr.IsValid() || !s.isPending(h.pending) {
		return nil
	}
	return s.remove(h.pending.addr)
}

// isPending reports whether an address file is the pending one.
func (s *Store) isPending(p pendingAdd) bool {
	ino, _, err := s.dir.stat(p.addr)
	if err != nil || p.ino != inPlace && ino != p.ino {
		return false
	}
	owner, err := s.dir.owner(p.addr)
	return err == nil && ownerKey(owner, p.addr) == p.owner
}

// ticksPerSecond is USER_HZ, the unit of /proc: 100 on every architecture that Go supports.
const ticksPerSecond = 100

// ProcessStart returns when this process started, as Uptime counts, at most 10 ms early.
func ProcessStart() (time.Duration, error) {
	data, err := readSmall("/proc/self/stat")
	if err != nil {
		return 0, fmt.Errorf("read the start time of this process: %w", err)
	}
	// The name in parentheses may contain anything; the 20th field after it is the start time, proc_pid_stat(5).
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 {
		return 0, fmt.Errorf("read the start time of this process: /proc/self/stat is too short: %q", data)
	}
	ticks, err := strconv.ParseUint(fields[19], 10, 63)
	return time.Duration(ticks) * time.Second / ticksPerSecond, err
}
