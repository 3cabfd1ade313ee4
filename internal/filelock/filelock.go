// Package filelock waits for flock(2) locks: for a bounded time, and says at the
// end which lock it was and who holds it.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// patience is how long a lock is waited for by a caller that has no deadline.
	patience = time.Minute
	// reserve is what is left, of a caller's deadline, for the work that the lock
	// is for; of a short one a half.
	reserve = 10 * time.Second

	firstPause, longestPause = time.Millisecond, 20 * time.Millisecond
)

// Busy is a lock that somebody held for as long as it could be waited for.
type Busy struct {
	Path   string
	Waited time.Duration
	Holder string // "bridge (process 123)"; "" if it cannot be seen
	cause  error  // the context's, if that ended first
}

func (b *Busy) Error() string {
	who := b.Holder
	if who == "" {
		who = "a process that cannot be seen from here"
	}
	s := fmt.Sprintf("the lock %s is held by %s, after %v of waiting: try again", b.Path, who, b.Waited.Round(time.Millisecond))
	if b.cause != nil {
		s += " (" + b.cause.Error() + ")"
	}
	return s
}

func (b *Busy) Unwrap() error { return b.cause }

// Try takes the lock of an open file if nobody holds it.
func Try(fd int) (bool, error) {
	for {
		switch err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err {
		case nil:
			return true, nil
		case syscall.EWOULDBLOCK:
			return false, nil
		case syscall.EINTR:
		default:
			return false, err
		}
	}
}

// Lock takes the lock of an open file. The wait leaves time, of the context's
// deadline, for the work; its end is a *Busy. It waits in the kernel's queue, so
// that nobody is passed over. After an error the caller closes the file: the
// system call that still waits has the file's other descriptor, the last one, and
// closes it when it gets the lock.
func Lock(ctx context.Context, fd int, path string) error {
	if ok, err := Try(fd); ok || err != nil {
		return failed(path, err)
	}
	began := time.Now()
	other, err := dup(fd)
	if err != nil {
		return failed(path, err)
	}
	got := make(chan error, 1)
	go func() { got <- wait(other) }()
	select {
	case err := <-got:
		return failed(path, err)
	case <-ctx.Done():
		return &Busy{Path: path, Waited: time.Since(began), Holder: Holder(path), cause: context.Cause(ctx)}
	case <-time.After(time.Until(deadline(ctx, began))):
		return &Busy{Path: path, Waited: time.Since(began), Holder: Holder(path)}
	}
}

func wait(fd int) error {
	defer syscall.Close(fd)
	for {
		if err := syscall.Flock(fd, syscall.LOCK_EX); err != syscall.EINTR {
			return err
		}
	}
}

// dup is another descriptor of an open file, which shares its lock.
func dup(fd int) (int, error) {
	n, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

func failed(path string, err error) error {
	if err != nil {
		return &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return nil
}

// Until tries again and again until it succeeds, fails, or has taken too long.
func Until(ctx context.Context, path string, try func() (bool, error)) error {
	began := time.Now()
	limit := deadline(ctx, began)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		done, err := try()
		if err != nil {
			return failed(path, err)
		}
		if done {
			return nil
		}
		rest := time.Until(limit)
		if rest <= 0 {
			return &Busy{Path: path, Waited: time.Since(began), Holder: Holder(path)}
		}
		select {
		case <-ctx.Done():
			return &Busy{Path: path, Waited: time.Since(began), Holder: Holder(path), cause: context.Cause(ctx)}
		case <-time.After(min(pause, rest)):
		}
	}
}

func deadline(ctx context.Context, now time.Time) time.Time {
	end, ok := ctx.Deadline()
	if !ok {
		return now.Add(patience)
	}
	left := end.Sub(now)
	return now.Add(left - min(reserve, left/2))
}

// Holder says who holds the lock of a file, as proc_locks(5) has it.
func Holder(path string) string {
	var st syscall.Stat_t
	raw, err := os.ReadFile("/proc/locks")
	if err = errors.Join(err, syscall.Stat(path, &st)); err != nil {
		return ""
	}
	return holder(string(raw), st.Ino)
}

// holder finds an inode: "1: FLOCK  ADVISORY  WRITE 123 08:01:456 0 EOF". A line
// of one that waits has "->" after its number. Devices are left out of the
// comparison: some file systems show another there than stat(2).
func holder(locks string, inode uint64) string {
	const kind, pid, file = 1, 4, 5
	for line := range strings.Lines(locks) {
		f := strings.Fields(line)
		if len(f) <= file || f[kind] != "FLOCK" || !strings.HasSuffix(f[file], ":"+strconv.FormatUint(inode, 10)) {
			continue
		}
		if n, err := strconv.Atoi(f[pid]); err != nil || n <= 0 {
			return "" // of another namespace of processes
		}
		name, err := os.ReadFile("/proc/" + f[pid] + "/comm")
		if err != nil {
			return "process " + f[pid]
		}
		return strings.TrimSpace(string(name)) + " (process " + f[pid] + ")"
	}
	return ""
}
