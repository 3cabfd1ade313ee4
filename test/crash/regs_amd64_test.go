package crash

import "golang.org/x/sys/unix"

func setRegs(pid int, f func(*unix.PtraceRegs)) error {
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(pid, &r); err != nil {
		return err
	}
	f(&r)
	return unix.PtraceSetRegs(pid, &r)
}

// skipCall makes the kernel skip the call: it returns ENOSYS.
func skipCall(pid int) error {
	return setRegs(pid, func(r *unix.PtraceRegs) { r.Orig_rax = ^uint64(0) })
}

// setResult sets the call's return value, at its exit.
func setResult(pid int, v int64) error {
	return setRegs(pid, func(r *unix.PtraceRegs) { r.Rax = uint64(v) })
}

// setLength sets the call's third argument, at its entry.
func setLength(pid int, n uint64) error {
	return setRegs(pid, func(r *unix.PtraceRegs) { r.Rdx = n })
}

func stackPointer(pid int) (uintptr, error) {
	var r unix.PtraceRegs
	err := unix.PtraceGetRegs(pid, &r)
	return uintptr(r.Rsp), err
}

// archNames returns the calls that other architectures lack.
func archNames() map[uint64]string {
	return map[uint64]string{
		unix.SYS_OPEN: "open", unix.SYS_STAT: "stat", unix.SYS_LSTAT: "lstat", unix.SYS_ACCESS: "access", unix.SYS_RENAME: "rename",
		unix.SYS_MKDIR: "mkdir", unix.SYS_RMDIR: "rmdir", unix.SYS_LINK: "link", unix.SYS_UNLINK: "unlink", unix.SYS_SYMLINK: "symlink",
		unix.SYS_READLINK: "readlink", unix.SYS_CHMOD: "chmod", unix.SYS_PIPE: "pipe", unix.SYS_DUP2: "dup2", unix.SYS_POLL: "poll",
		unix.SYS_FORK: "fork", unix.SYS_VFORK: "vfork", unix.SYS_ARCH_PRCTL: "arch_prctl", unix.SYS_EPOLL_WAIT: "epoll_wait",
		unix.SYS_SELECT: "select", unix.SYS_GETPGRP: "getpgrp", unix.SYS_ALARM: "alarm", unix.SYS_TIME: "time", unix.SYS_CHOWN: "chown",
		unix.SYS_NEWFSTATAT: "newfstatat", unix.SYS_GETDENTS: "getdents", unix.SYS_RENAMEAT: "renameat",
	}
}
