package crash

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// callNames maps the numbers of the calls in this file's tables to their names.
var callNames = sync.OnceValue(func() map[uint64]string {
	names := map[uint64]string{
		unix.SYS_OPENAT: "openat", unix.SYS_READ: "read", unix.SYS_WRITE: "write", unix.SYS_PREAD64: "pread64", unix.SYS_PWRITE64: "pwrite64",
		unix.SYS_READV: "readv", unix.SYS_WRITEV: "writev", unix.SYS_CLOSE: "close", unix.SYS_CLOSE_RANGE: "close_range", unix.SYS_FSTAT: "fstat", unix.SYS_STATX: "statx",
		unix.SYS_LSEEK: "lseek", unix.SYS_GETDENTS64: "getdents64", unix.SYS_READLINKAT: "readlinkat", unix.SYS_FACCESSAT: "faccessat",
		unix.SYS_FACCESSAT2: "faccessat2", unix.SYS_UNLINKAT: "unlinkat", unix.SYS_RENAMEAT2: "renameat2",
		unix.SYS_LINKAT: "linkat", unix.SYS_SYMLINKAT: "symlinkat", unix.SYS_MKDIRAT: "mkdirat", unix.SYS_FTRUNCATE: "ftruncate",
		unix.SYS_FCHMOD: "fchmod", unix.SYS_FCHMODAT: "fchmodat", unix.SYS_UTIMENSAT: "utimensat", unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync",
		unix.SYS_FLOCK: "flock", unix.SYS_FCNTL: "fcntl", unix.SYS_IOCTL: "ioctl", unix.SYS_DUP: "dup", unix.SYS_DUP3: "dup3", unix.SYS_PIPE2: "pipe2",
		unix.SYS_SOCKET: "socket", unix.SYS_BIND: "bind", unix.SYS_CONNECT: "connect", unix.SYS_ACCEPT4: "accept4", unix.SYS_LISTEN: "listen",
		unix.SYS_SENDTO: "sendto", unix.SYS_SENDMSG: "sendmsg", unix.SYS_RECVFROM: "recvfrom", unix.SYS_RECVMSG: "recvmsg",
		unix.SYS_SETSOCKOPT: "setsockopt", unix.SYS_GETSOCKOPT: "getsockopt", unix.SYS_GETSOCKNAME: "getsockname", unix.SYS_GETPEERNAME: "getpeername", unix.SYS_SHUTDOWN: "shutdown",
		unix.SYS_SETNS: "setns", unix.SYS_UNSHARE: "unshare", unix.SYS_MOUNT: "mount", unix.SYS_UMOUNT2: "umount2",
		unix.SYS_EXECVE: "execve", unix.SYS_EXIT_GROUP: "exit_group", unix.SYS_WAIT4: "wait4", unix.SYS_WAITID: "waitid", unix.SYS_KILL: "kill",
		unix.SYS_PIDFD_OPEN: "pidfd_open", unix.SYS_PIDFD_SEND_SIGNAL: "pidfd_send_signal", unix.SYS_STATFS: "statfs", unix.SYS_FSTATFS: "fstatfs",
		unix.SYS_CHDIR: "chdir", unix.SYS_UMASK: "umask", unix.SYS_GETCWD: "getcwd", unix.SYS_UNAME: "uname", unix.SYS_PPOLL: "ppoll", unix.SYS_PSELECT6: "pselect6",
		unix.SYS_CLONE: "clone", unix.SYS_CLONE3: "clone3", unix.SYS_COPY_FILE_RANGE: "copy_file_range", unix.SYS_SPLICE: "splice", unix.SYS_SENDFILE: "sendfile", unix.SYS_BPF: "bpf",
	}
	for nr, name := range archNames() {
		names[nr] = name
	}
	return names
})

// ignored reports whether a call is not a point: calls of the Go runtime and of libc for threads, memory, signals,
// waiting and process identity. They change nothing outside the process, so the machine's state is the same before and
// after them.
func ignored(nr uint64) bool {
	switch nr {
	case unix.SYS_FUTEX, unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MREMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_BRK,
		unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RT_SIGTIMEDWAIT,
		unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY, unix.SYS_RESTART_SYSCALL,
		unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETPID, unix.SYS_GETPPID, unix.SYS_GETTID, unix.SYS_TGKILL, unix.SYS_TKILL,
		unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_GETRESUID, unix.SYS_CAPGET,
		unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2, unix.SYS_EVENTFD2,
		unix.SYS_GETRANDOM, unix.SYS_SET_TID_ADDRESS, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_PRLIMIT64, unix.SYS_GETRLIMIT,
		unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE, unix.SYS_SETITIMER, unix.SYS_EXIT, unix.SYS_PRCTL,
		unix.SYS_GETPRIORITY, unix.SYS_MINCORE, unix.SYS_SYSINFO, unix.SYS_MEMBARRIER:
		return true
	}
	switch callName(nr) {
	case "clone", "clone3", "fork", "vfork", "arch_prctl", "epoll_wait", "getpgrp", "time":
		return true
	}
	return false
}

// mayChange reports whether a call of an external program (iptables, nft) may change something. Its other calls,
// hundreds of them, are not points.
func mayChange(name string) bool {
	return slices.Contains([]string{"execve", "sendmsg", "sendto", "setsockopt", "write", "exit_group"}, name)
}

// These are the meanings of a call's first arguments.
const (
	argOther = iota
	argPath
	argAtPath
	argFD
)

func argKind(name string) int {
	switch name {
	case "open", "stat", "lstat", "access", "rename", "mkdir", "rmdir", "link", "unlink", "symlink", "readlink", "chmod", "execve", "mount", "umount2", "statfs", "chdir", "chown":
		return argPath
	case "openat", "newfstatat", "statx", "readlinkat", "faccessat", "faccessat2", "unlinkat", "renameat", "renameat2", "linkat", "mkdirat", "fchmodat", "utimensat":
		return argAtPath
	case "read", "write", "pread64", "pwrite64", "readv", "writev", "close", "fstat", "lseek", "getdents64", "ftruncate", "fchmod", "fsync", "fdatasync",
		"flock", "fcntl", "ioctl", "sendto", "sendmsg", "recvfrom", "recvmsg", "bind", "connect", "setsockopt", "getsockopt", "getsockname", "setns":
		return argFD
	}
	return argOther
}

// kindOf returns the path without the parts that differ between runs.
func kindOf(path string) string {
	if kind, _, ok := strings.Cut(path, ":"); ok && !strings.Contains(kind, "/") {
		return kind // socket:[123], pipe:[123]
	}
	path = regexp.MustCompile(`^.*/machine-[^/]*/`).ReplaceAllString(path, "$$WORK/")
	path = regexp.MustCompile(`^.*/netns$`).ReplaceAllString(path, "$$WORK/netns")
	path = regexp.MustCompile(`[0-9a-f]{6,}|[0-9]+`).ReplaceAllString(path, "#")
	return filepath.Clean(path)
}

// errnos returns the errors that a call may return: the sweep's six, except those that no kernel returns from this
// call.
func errnos(program, name, what string) (out []unix.Errno) {
	if program != "" {
		// iptables treats a failed read as an empty ruleset and then reports that an existing rule is missing, or that
		// a missing rule exists. No caller can work around that.
		if name != "execve" {
			return nil
		}
	}
	if what == "pipe" {
		return nil // reads and writes on a pipe between two programs: the other end may be closed
	}
	add := func(e unix.Errno, calls ...string) {
		if slices.Contains(calls, name) {
			out = append(out, e)
		}
	}
	add(unix.EINTR, "open", "openat", "read", "write", "close", "flock", "connect", "accept4", "sendto", "sendmsg",
		"recvfrom", "recvmsg", "ioctl", "fsync", "fdatasync", "wait4", "waitid")
	add(unix.ENOMEM, "open", "openat", "read", "write", "pread64", "pwrite64", "flock", "fcntl", "connect", "socket", "bind", "sendto", "sendmsg", "recvfrom", "recvmsg",
		"setsockopt", "getsockname", "ioctl", "setns", "mkdirat", "unlinkat", "unlink", "rmdir", "link", "linkat", "renameat", "renameat2", "utimensat", "newfstatat", "stat", "statx", "fstat", "getdents64",
		"ftruncate", "pipe2", "execve", "pidfd_open", "readlinkat", "fchmod", "fchmodat", "faccessat", "faccessat2", "mkdir", "rename")
	add(unix.EBUSY, "open", "openat", "write", "pwrite64", "ioctl", "setns", "unlinkat", "unlink", "rmdir", "link", "linkat", "renameat", "renameat2", "rename", "mkdirat", "ftruncate", "sendto", "sendmsg")
	add(unix.ENOSPC, "open", "openat", "write", "pwrite64", "mkdirat", "mkdir", "link", "linkat", "renameat", "renameat2", "rename", "ftruncate", "utimensat", "fsync", "fdatasync", "unlinkat", "fchmod")
	add(unix.EIO, "open", "openat", "read", "write", "pread64", "pwrite64", "close", "fsync", "fdatasync", "mkdirat", "mkdir", "link", "linkat", "unlinkat", "unlink", "rmdir", "renameat", "renameat2", "rename",
		"newfstatat", "stat", "statx", "fstat", "getdents64", "ftruncate", "utimensat", "readlinkat", "ioctl", "execve", "fchmod", "fchmodat", "faccessat", "faccessat2", "lseek")
	add(unix.EMFILE, "open", "openat", "socket", "pipe2", "dup", "dup3", "accept4", "fcntl", "pidfd_open")
	return out
}
