package crash

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

func setRegs(pid int, f func(*unix.PtraceRegs)) error {
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(pid, &r); err != nil {
		return err
	}
	f(&r)
	return unix.PtraceSetRegs(pid, &r)
}

// ntSystemCall is the register set that holds only the call's number.
const ntSystemCall = 0x404

// skipCall makes the kernel skip the call: it returns ENOSYS.
func skipCall(pid int) error {
	var nr [4]byte
	binary.NativeEndian.PutUint32(nr[:], ^uint32(0))
	iov := unix.Iovec{Base: &nr[0], Len: uint64(len(nr))}
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SETREGSET, uintptr(pid), ntSystemCall, uintptr(unsafe.Pointer(&iov)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// setResult sets the call's return value, at its exit.
func setResult(pid int, v int64) error {
	return setRegs(pid, func(r *unix.PtraceRegs) { r.Regs[0] = uint64(v) })
}

// setLength sets the call's third argument, at its entry.
func setLength(pid int, n uint64) error {
	return setRegs(pid, func(r *unix.PtraceRegs) { r.Regs[2] = n })
}

func stackPointer(pid int) (uintptr, error) {
	var r unix.PtraceRegs
	err := unix.PtraceGetRegs(pid, &r)
	return uintptr(r.Sp), err
}

// archNames returns the calls that other architectures lack.
func archNames() map[uint64]string {
	return map[uint64]string{unix.SYS_FSTATAT: "newfstatat", unix.SYS_RENAMEAT: "renameat"}
}
