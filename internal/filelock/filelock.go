// Package filelock waits for flock(2) locks for a limited time. Its error names the lock and its holder.
//
// A process that starts another one gives it a copy of all open files until the program runs. The copy keeps a lock, so
// closing a file does not end its lock: use Close or CloseFD.
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
	// patience limits the wait of a caller without a deadline.
	patience = time.Minute
	// reserve is the part of a caller's deadline that is left for the work under the lock. For a short deadline it is a
	// half.
	reserve = 10 * time.Second

	firstPause, longestPause = time.Millisecond, 20 * time.Millisecond
)

// Busy is the error if another process held a lock during the whole wait.
type Busy struct {
	Path   string
	Waited time.Duration
	Holder string // "bridge (process 123)"; "" if unknown
	cause  error  // the context's error, if the context ended first
}

func (b *Busy) Error() string {
	s := fmt.Sprintf("%s, after %v of waiting: try again", describe(b.Path, b.Holder), b.Waited.Round(time.Millisecond))
	if b.cause != nil {
		s += " (" + b.cause.Error() + ")"
	}
	return s
}

// Describe says for an error who holds a file's lock.
func Describe(path string) string { return describe(path, holderAt(path)) }

func describe(path, holder string) string {
	if holder == "" { // /proc/locks has no locks of processes in other PID namespaces
		return "the lock " + path + " was held by a process that has released it since, or that cannot be seen from here"
	}
	return "the lock " + path + " is held by " + holder
}

func (b *Busy) Unwrap() error { return b.cause }

// Try takes the lock of an open file if it is free.
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

// Lock takes the lock of an open file. It stops waiting early enough before the context's deadline to leave time for
// the work, and then returns a *Busy. It waits in the kernel's queue, so that no waiter starves. After an error the
// caller closes the file. The pending system call holds a duplicate descriptor, and unlocks it when it gets the lock.
func Lock(ctx context.Context, fd int, path string) error {
	if ok, err := Try(fd); ok || err != nil {
		return failed(path, err)
	}
	began := time.Now()
	busy := func(cause error) error {
		return &Busy{Path: path, Waited: time.Since(began), Holder: holderOf(fd), cause: cause}
	}
	other, err := dup(fd)
	if err != nil {
		return failed(path, err)
	}
	got, gone := make(chan error), make(chan struct{})
	defer close(gone)
	go func() {
		err := wait(other)
		select {
		case got <- err:
			_ = syscall.Close(other)
		case <-gone:
			_ = CloseFD(other)
		}
	}()
	select {
	case err := <-got:
		return failed(path, err)
	case <-ctx.Done():
		return busy(context.Cause(ctx))
	case <-time.After(time.Until(deadline(ctx, began))):
		return busy(nil)
	}
}

func wait(fd int) error {
	for {
		if err := syscall.Flock(fd, syscall.LOCK_EX); err != syscall.EINTR {
			return err
		}
	}
}

// Close unlocks and closes a file.
func Close(f *os.File) error {
	return errors.Join(unlock(int(f.Fd())), f.Close())
}

// CloseFD unlocks and closes a file descriptor.
func CloseFD(fd int) error {
	return errors.Join(unlock(fd), syscall.Close(fd))
}

func unlock(fd int) error { return syscall.Flock(fd, syscall.LOCK_UN) }

// dup duplicates the descriptor of an open file. The duplicate shares the lock.
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

// Until calls a function repeatedly until it succeeds, fails, or takes too long.
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
			return &Busy{Path: path, Waited: time.Since(began), Holder: holderAt(path)}
		}
		select {
		case <-ctx.Done():
			return &Busy{Path: path, Waited: time.Since(began), Holder: holderAt(path), cause: context.Cause(ctx)}
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

// holderAt returns the holder of a file's lock, see holderOfInode.
func holderAt(path string) string {
	var st syscall.Stat_t
	if syscall.Stat(path, &st) != nil {
		return ""
	}
	return holderOfInode(st.Ino)
}

// holderOf returns the holder of an open file's lock. The file at its path may be another one by now: the last holder of
// some locks deletes the file.
func holderOf(fd int) string {
	var st syscall.Stat_t
	if syscall.Fstat(fd, &st) != nil {
		return ""
	}
	return holderOfInode(st.Ino)
}

// holderOfInode returns the holder of a lock, from proc_locks(5), or "" if it is not known. The kernel writes that file in
// pieces. It leaves out locks if other locks end between two pieces, so a file without the lock is read again.
func holderOfInode(inode uint64) string {
	const tries = 5
	for range tries {
		raw, err := os.ReadFile("/proc/locks")
		if err != nil {
			return ""
		}
		if who, found := holder(string(raw), inode); found {
			return who
		}
	}
	return ""
}

// holder finds an inode in lines such as "1: FLOCK ADVISORY WRITE 123 08:01:456 0 EOF". A waiter's line has "->" after
// its number. It does not compare devices, because some file systems show another one there than in stat(2).
func holder(locks string, inode uint64) (who string, found bool) {
	const kind, pid, file = 1, 4, 5
	for line := range strings.Lines(locks) {
		f := strings.Fields(line)
		if len(f) <= file || f[kind] != "FLOCK" || !strings.HasSuffix(f[file], ":"+strconv.FormatUint(inode, 10)) {
			continue
		}
		if n, err := strconv.Atoi(f[pid]); err != nil || n <= 0 {
			return "", true // a process in another PID namespace
		}
		name, err := os.ReadFile("/proc/" + f[pid] + "/comm")
		if err != nil {
			return "process " + f[pid], true
		}
		return strings.TrimSpace(string(name)) + " (process " + f[pid] + ")", true
	}
	return "", false
}
