package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"github.com/fairlead/fairlead/test/vm/job"
)

// sysFinitModule is finit_module(2) on linux/amd64. Package syscall does not define it.
const sysFinitModule = 313

func loadModules(files []string) error {
	for _, f := range files {
		if err := loadModule(f); err != nil {
			return fmt.Errorf("load module %s: %w", f, err)
		}
	}
	return nil
}

func loadModule(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	none := []byte{0}
	_, _, errno := syscall.Syscall(sysFinitModule, f.Fd(), uintptr(unsafe.Pointer(&none[0])), 0)
	if errno != 0 && errno != syscall.EEXIST {
		return errno
	}
	return nil
}

// mount is one of the machine's file systems.
type mount struct {
	source, dir, kind string
	flags             uintptr
	options           string
	optional          bool     // some kernels lack it
	dirs              []string // directories to create first
}

func (m mount) do() error {
	err := os.MkdirAll(m.dir, 0o755)
	if err == nil {
		err = syscall.Mount(m.source, m.dir, m.kind, m.flags, m.options)
	}
	if err != nil && !m.optional {
		return fmt.Errorf("mount %s on %s: %w", m.source, m.dir, err)
	}
	return nil
}

func makeDirs(dirs []string) error {
	for _, d := range dirs {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// newRoot makes an overlay of the host's file system the root, so that paths, tools and test data are the same as on
// the host. All changes go to memory.
func newRoot(j *job.Job) error {
	modules := "/new/lib/modules/" + j.Release
	list := []mount{
		{source: "dev", dir: "/dev", kind: "devtmpfs"},
		{source: job.RootTag, dir: "/ro", kind: "virtiofs", flags: syscall.MS_RDONLY},
		{source: "changes", dir: "/changes", kind: "tmpfs"},
		{source: "root", dir: "/new", kind: "overlay", options: "lowerdir=/ro,upperdir=/changes/upper,workdir=/changes/work",
			dirs: []string{"/changes/upper", "/changes/work"}},
		{source: "/ro" + j.Modules, dir: modules, flags: syscall.MS_BIND},
		{source: "/dev", dir: "/new/dev", flags: syscall.MS_MOVE},
		{source: "proc", dir: "/new/proc", kind: "proc"},
		{source: "sys", dir: "/new/sys", kind: "sysfs"},
		{source: "run", dir: "/new/run", kind: "tmpfs"},
		{source: job.OutTag, dir: "/new" + job.Out, kind: "virtiofs"},
		{source: "pts", dir: "/new/dev/pts", kind: "devpts"},
		{source: "shm", dir: "/new/dev/shm", kind: "tmpfs"},
		{source: "cgroup", dir: "/new/sys/fs/cgroup", kind: "cgroup2"},
		{source: "bpf", dir: "/new/sys/fs/bpf", kind: "bpf", optional: true},
		{source: "selinux", dir: "/new/sys/fs/selinux", kind: "selinuxfs", optional: true},
	}
	for _, s := range j.Writable {
		list = append(list, mount{source: s.Tag, dir: "/new" + s.Dir, kind: "virtiofs"})
	}
	for _, m := range list {
		if err := errors.Join(makeDirs(m.dirs), m.do()); err != nil {
			return err
		}
	}
	return enter("/new")
}

// enter makes a directory the root file system, as switch_root(8) does.
func enter(dir string) error {
	return errors.Join(
		os.Chdir(dir),
		syscall.Mount(".", "/", "", syscall.MS_MOVE, ""),
		syscall.Chroot("."),
		os.Chdir("/"),
		os.MkdirAll("/run/netns", 0o755))
}
