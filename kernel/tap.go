package kernel

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Tap is a link of the container whose other end is a program: a virtual
// machine's, say. It stays when no program has it open.
type Tap struct {
	base
	Name       string `json:",omitzero"`
	MAC        string `json:",omitzero"`
	MTU        int    `json:",omitzero"` // bytes; 0: the kernel's 1500
	MultiQueue bool   `json:",omitzero"` // several programs, or threads, may open it at once
	Owner      *int   `json:",omitzero"` // user who may open it; nil: anyone with CAP_NET_ADMIN
	Group      *int   `json:",omitzero"`
	Context    string `json:",omitzero"` // SELinux context it is made in; "": ours
	Master     string `json:",omitzero"` // bridge of the container; "": none
	Mark       string `json:",omitzero"` // alias
}

const ( // linux/if_link.h: IFLA_INFO_DATA of a tun
	tunOwner      = 1
	tunGroup      = 2
	tunType       = 3
	tunMultiQueue = 7
	tunTap        = 2 // of tunType: linux/if_tun.h IFF_TAP
)

func (t *Tap) kind() string      { return "tap" }
func (t *Tap) Side() Side        { return Container }
func (t *Tap) Shared() bool      { return false }
func (t *Tap) links() []linkName { return []linkName{{Container, t.Name}} }

func (t *Tap) String() string {
	s := strings.Join(t.command(), " ") + " address " + t.MAC
	if t.MTU > 0 {
		s += " mtu " + strconv.Itoa(t.MTU)
	}
	if t.Master != "" {
		s += " master " + t.Master
	}
	if t.Context != "" {
		s += " context " + t.Context
	}
	return s
}

// command is what makes it in the words of ip-tuntap(8).
func (t *Tap) command() []string {
	argv := []string{"ip", "tuntap", "add", "name", t.Name, "mode", "tap"}
	if t.MultiQueue {
		argv = append(argv, "multi_queue")
	}
	if t.Owner != nil {
		argv = append(argv, "user", strconv.Itoa(*t.Owner))
	}
	if t.Group != nil {
		argv = append(argv, "group", strconv.Itoa(*t.Group))
	}
	return argv
}

func (t *Tap) ensure(e *Engine) error {
	if e.ns[Container] == nil {
		return errNoContainer
	}
	master := 0
	if t.Master != "" {
		var err error
		if master, err = e.ifindex(Container, t.Master); err != nil {
			return err
		}
	}
	if err := e.flush(); err != nil {
		return err
	}
	if t.Context != "" {
		return t.inContext(e, master)
	}
	return t.birth(e, master)
}

// birth keeps the device open until it is complete: who is killed before leaves nothing.
func (t *Tap) birth(e *Engine, master int) error {
	fd := -1
	err := e.inside(Container, func() (err error) { // the device is made where this file is opened
		fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return fmt.Errorf("open /dev/net/tun, for which the kernel needs its module tun: %w", err)
	}
	defer unix.Close(fd)
	if err := t.claim(fd); err != nil {
		return err
	}
	if err := t.complete(e, master); err != nil {
		return err
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
		return fmt.Errorf("make it stay: %w", err)
	}
	e.made(t)
	return nil
}

// claim makes the device, which belongs to the descriptor for now.
func (t *Tap) claim(fd int) error {
	req, err := unix.NewIfreq(t.Name)
	if err != nil {
		return err
	}
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_TUN_EXCL)
	if t.MultiQueue {
		flags |= unix.IFF_MULTI_QUEUE | unix.IFF_VNET_HDR
	}
	req.SetUint16(flags)
	err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EINVAL) { // EINVAL: there, and of another type
		return nameTaken(t.Name, err)
	}
	if err == nil && t.Owner != nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETOWNER, *t.Owner)
	}
	if err == nil && t.Group != nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETGROUP, *t.Group)
	}
	return err
}

// complete sets what only netlink can, in one message.
func (t *Tap) complete(e *Engine, master int) error {
	body := newLink(t.Name, t.MAC, t.MTU)
	body.bytes(unix.IFLA_IFALIAS, []byte(t.Mark))
	if master != 0 {
		body.u32(unix.IFLA_MASTER, uint32(master))
	}
	_, err := e.now(Container, request{unix.RTM_SETLINK, 0, body})
	return err
}

// inContext has ip(8) make the device: a process takes on an SELinux context as
// it starts, and a device has its maker's.
func (t *Tap) inContext(e *Engine, master int) error {
	if _, err := e.Link(Container, t.Name); err == nil {
		return nameTaken(t.Name, unix.EEXIST)
	}
	err := e.inside(Container, func() error { return runAs(t.Context, t.command()) })
	if err != nil {
		return err
	}
	e.made(t)
	return t.complete(e, master)
}

// execContext is where the calling thread's next program gets its context from.
const execContext = "/proc/thread-self/attr/exec"

// runAs runs a command in an SELinux context, from a thread that no other work
// runs on.
func runAs(context string, argv []string) error {
	if err := writeFile(execContext, context); err != nil {
		return fmt.Errorf("SELinux context %s: %w", context, err)
	}
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %s: %w", strings.Join(argv, " "), strings.TrimSpace(string(out)), err)
	}
	return errors.Join(err, writeFile(execContext, "\n")) // its own again
}

func writeFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func (t *Tap) diff(e *Engine) ([]string, error) {
	l, err := e.Link(Container, t.Name)
	if err != nil {
		return nil, err
	}
	if l.Kind != "tun" || num8(attr(l.data, tunType)) != tunTap {
		return []string{"is no tap but " + kindWords(l)}, nil
	}
	d := ownDiff(l, "tun", t.Mark)
	if multi := num8(attr(l.data, tunMultiQueue)) != 0; multi != t.MultiQueue {
		d = append(d, fmt.Sprintf("multi_queue is %s, want %s", onOff(multi), onOff(t.MultiQueue)))
	}
	for _, x := range []struct {
		what string
		want *int
		have []byte
	}{{"owner", t.Owner, attr(l.data, tunOwner)}, {"group", t.Group, attr(l.data, tunGroup)}} {
		if x.want != nil && (x.have == nil || int(num32(x.have)) != *x.want) {
			d = append(d, fmt.Sprintf("%s is not %d", x.what, *x.want))
		}
	}
	return d, nil
}

func (t *Tap) remove(e *Engine) error { return e.deleteInside(t.Name, "tun", t.Mark) }
