package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"
)

// share is a directory of the host that a guest mounts by virtiofs.
type share struct {
	tag, dir string
	readOnly bool
}

// shareCommand is the argument that makes this program a share's server: see serveShare.
const shareCommand = "share"

// start starts a share's server and waits for its socket.
func (s share) start(ctx context.Context, work string) (socket string, _ *exec.Cmd, err error) {
	socket = filepath.Join(work, s.tag+".sock")
	mode := "rw"
	if s.readOnly {
		mode = "ro"
	}
	log, err := os.Create(filepath.Join(work, s.tag+".log"))
	if err != nil {
		return "", nil, err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", shareCommand, mode, socket, s.dir, work)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = killedWithParent()
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	for range 500 {
		if _, err := os.Stat(socket); err == nil {
			return socket, cmd, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	text, _ := os.ReadFile(log.Name())
	return "", cmd, fmt.Errorf("virtiofsd did not start on %s: %s", s.dir, text)
}

// killedWithParent makes the kernel kill a process when this one ends.
func killedWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// virtiofsd returns the path of virtiofsd, which some distributions install outside PATH.
func virtiofsd() (string, error) {
	for _, path := range []string{"/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd", "virtiofsd"} {
		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}
	return "", errors.New("virtiofsd is missing: on Debian 12 it is in qemu-system-common, later in virtiofsd")
}

// serveShare executes virtiofsd. The server sees a read-only share through a read-only mount, so the guest cannot write
// to it.
func serveShare(mode, socket, dir, work string) error {
	program, err := virtiofsd()
	if err != nil {
		return err
	}
	if mode == "ro" {
		if dir, err = readOnlyView(dir, work); err != nil {
			return err
		}
	}
	argv := []string{program, "--socket-path=" + socket, "-o", "source=" + dir, "-o", "cache=always", "-o", "sandbox=chroot"}
	return fmt.Errorf("start %s: %w", program, syscall.Exec(program, argv, os.Environ()))
}

func readOnlyView(dir, work string) (string, error) {
	view := filepath.Join(work, "view")
	err := errors.Join(
		os.Mkdir(view, 0o700),
		syscall.Unshare(syscall.CLONE_NEWNS),
		syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount(dir, view, "", syscall.MS_BIND|syscall.MS_REC, ""),
		readOnly(view))
	if err != nil {
		return "", fmt.Errorf("make a read-only view of %s: %w", dir, err)
	}
	return view, nil
}

// readOnly makes a mount and all below it read-only: mount_setattr(2), kernel 5.12.
func readOnly(dir string) error {
	const (
		sysMountSetattr = 442
		atFDCWD         = -100
		atRecursive     = 0x8000
		mountAttrRdonly = 1
	)
	path, err := syscall.BytePtrFromString(dir)
	if err != nil {
		return err
	}
	attr := struct{ set, clear, propagation, userns uint64 }{set: mountAttrRdonly}
	cwd := atFDCWD
	_, _, errno := syscall.Syscall6(sysMountSetattr, uintptr(cwd), uintptr(unsafe.Pointer(path)), atRecursive,
		uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
