package crash

import (
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"github.com/fairlead/fairlead/internal/plugintest"
	"golang.org/x/sys/unix"
)

// callInfo is the kernel's description of a stop at a system call. It has the same layout on every architecture
// (ptrace(2), PTRACE_GET_SYSCALL_INFO, Linux 5.3).
type callInfo struct {
	op     byte
	nr     uint64 // at entry
	args   [6]uint64
	failed bool // at exit
}

const (
	opEntry = 1
	opExit  = 2
)

func syscallInfo(pid int) (*callInfo, error) {
	var b [88]byte
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(pid), uintptr(len(b)), uintptr(unsafe.Pointer(&b[0])), 0, 0)
	if errno != 0 {
		return nil, errno
	}
	at := func(off int) uint64 { return binary.NativeEndian.Uint64(b[off:]) }
	i := &callInfo{op: b[0]}
	switch i.op {
	case opEntry:
		i.nr = at(24)
		for n := range i.args {
			i.args[n] = at(32 + 8*n)
		}
	case opExit:
		i.failed = b[32] != 0
	}
	return i, nil
}

// isMark reports whether a traced program marks the end of its start: see plugintest.Mark.
func isMark(c *call) bool {
	return c.nr == unix.SYS_GETPRIORITY && c.args[0] == plugintest.MarkWhich && c.args[1] == plugintest.MarkWho
}

// marks reports whether a program marks the end of its start: this test binary and the test program do.
func marks(exe string) bool { return exe == self() || exe == testProgram }

// self returns the path of this test binary.
var self = sync.OnceValue(func() string {
	path, _ := os.Readlink("/proc/self/exe")
	return path
})

// hideVDSO removes the vDSO's address from the program's auxiliary vector, at the stop after exec. The program then
// reads the time with a system call, as on machines without a vDSO.
func hideVDSO(pid int) error {
	at, err := stackPointer(pid)
	if err != nil {
		return err
	}
	word := func() (uint64, error) {
		var b [8]byte
		_, err := unix.PtracePeekData(pid, at, b[:])
		at += 8
		return binary.NativeEndian.Uint64(b[:]), err
	}
	argc, err := word()
	if err != nil {
		return err
	}
	at += 8 * uintptr(argc+1)
	for { // skip the environment
		w, err := word()
		if err != nil {
			return err
		}
		if w == 0 {
			break
		}
	}
	const sysinfoEHDR, ignore = 33, 1 // getauxval(3)
	for {
		w, err := word()
		if err != nil {
			return err
		}
		switch w {
		case 0:
			return errors.New("the auxiliary vector has no vDSO address")
		case sysinfoEHDR:
			_, err := unix.PtracePokeData(pid, at-8, binary.NativeEndian.AppendUint64(nil, ignore))
			return err
		}
		at += 8
	}
}

// addSeconds adds d to a struct timespec in the program's memory.
func addSeconds(pid int, at uintptr, d time.Duration) error {
	var b [8]byte
	if _, err := unix.PtracePeekData(pid, at, b[:]); err != nil {
		return err
	}
	sec := binary.NativeEndian.Uint64(b[:]) + uint64(int64(d/time.Second))
	_, err := unix.PtracePokeData(pid, at, binary.NativeEndian.AppendUint64(nil, sec))
	return err
}

func callName(nr uint64) string {
	if n, ok := callNames()[nr]; ok {
		return n
	}
	return "call " + strconv.FormatUint(nr, 10)
}
