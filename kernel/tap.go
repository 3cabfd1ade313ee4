package kernel

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Tap is a link of the container whose other end is a program, for example a virtual machine. It stays when no program
// has it open.
type Tap struct {
	base
	Name       string `json:",omitzero"`
	MAC        string `json:",omitzero"`
	MTU        int    `json:",omitzero"`      // bytes; 0: the kernel's 1500
	MultiQueue bool   `json:",omitzero"`      // several programs or threads may open it at once
	UID        *int   `json:"Owner,omitzero"` // user that may open it; nil: every process with CAP_NET_ADMIN
	GID        *int   `json:"Group,omitzero"`
	Context    string `json:",omitzero"`     // SELinux context to create it in; "": the current one
	Master     string `json:",omitzero"`     // bridge of the container; "": none
	OwnerTag   string `json:"Mark,omitzero"` // alias

	changed LinkSettings // what a later plugin sets
}

const ( // linux/if_link.h: IFLA_INFO_DATA of a tun
	tunOwner      = 1
	tunGroup      = 2
	tunType       = 3
	tunMultiQueue = 7
	tunTap        = 2 // value of tunType: IFF_TAP of linux/if_tun.h
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

// command returns the ip-tuntap(8) command that creates the link.
func (t *Tap) command() []string {
	argv := []string{"ip", "tuntap", "add", "name", t.Name, "mode", "tap"}
	if t.MultiQueue {
		argv = append(argv, "multi_queue")
	}
	if t.UID != nil {
		argv = append(argv, "user", strconv.Itoa(*t.UID))
	}
	if t.GID != nil {
		argv = append(argv, "group", strconv.Itoa(*t.GID))
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
		if master, err = e.LinkIndex(Container, t.Master); err != nil {
			return err
		}
	}
	if err := e.flush(); err != nil {
		return err
	}
	if t.Context != "" {
		return t.inContext(e, master)
	}
	return t.create(e, master)
}

// create keeps the device open until it is complete, so a kill leaves nothing.
func (t *Tap) create(e *Engine, master int) error {
	fd, err := t.open(e)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := t.claim(fd, unix.IFF_TUN_EXCL); err != nil {
		return err
	}
	if err := t.complete(e, master); err != nil {
		return err
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
		return fmt.Errorf("make the device persistent: %w", err)
	}
	e.noteCreated(t)
	return nil
}

// open opens the kernel's control file in the container's namespace, which decides the namespace of the device.
func (t *Tap) open(e *Engine) (fd int, err error) {
	err = e.InNetns(Container, func() (err error) {
		fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("open /dev/net/tun, for which the kernel needs its module tun: %w", err)
	}
	return fd, nil
}

// claim creates the device or, without IFF_TUN_EXCL, uses the existing one. A new device exists as long as the
// descriptor is open.
func (t *Tap) claim(fd int, exclusive uint16) error {
	req, err := unix.NewIfreq(t.Name)
	if err != nil {
		return err
	}
	flags := unix.IFF_TAP | unix.IFF_NO_PI | exclusive
	if t.MultiQueue {
		flags |= unix.IFF_MULTI_QUEUE | unix.IFF_VNET_HDR
	}
	req.SetUint16(flags)
	err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EINVAL) { // EINVAL: the name belongs to a device of another type
		return nameTaken(t.Name, err)
	}
	if err == nil && t.UID != nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETOWNER, *t.UID)
	}
	if err == nil && t.GID != nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETGROUP, *t.GID)
	}
	return err
}

// complete sets the attributes that need netlink, in one message.
func (t *Tap) complete(e *Engine, master int) error {
	body := newLink(t.Name, t.MAC, t.MTU)
	body.Bytes(unix.IFLA_IFALIAS, []byte(t.OwnerTag))
	if master != 0 {
		body.Uint32(unix.IFLA_MASTER, uint32(master))
	}
	_, err := e.Request(Container, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: body})
	return err
}

// inContext makes ip(8) create the device: a device gets the SELinux context of the process that creates it, and a
// process gets its context when it starts.
func (t *Tap) inContext(e *Engine, master int) error {
	if _, err := e.Link(Container, t.Name); err == nil {
		return nameTaken(t.Name, unix.EEXIST)
	}
	err := e.InNetns(Container, func() error { return e.runAs(t.Context, t.command()) })
	if err != nil {
		return err
	}
	e.noteCreated(t)
	return t.complete(e, master)
}

// execContext is the file that sets the SELinux context of the next program that the calling thread starts.
const execContext = "/proc/thread-self/attr/exec"

// runAs runs a command in an SELinux context. Nothing else may run on the calling thread.
func (e *Engine) runAs(context string, argv []string) error {
	if err := writeFile(execContext, context); err != nil {
		return fmt.Errorf("SELinux context %s: %w", context, err)
	}
	cmd, done := e.command(argv[0], argv[1:]...)
	out, err := cmd.CombinedOutput()
	if err = done(err); err != nil {
		err = fmt.Errorf("%s: %s: %w", strings.Join(argv, " "), strings.TrimSpace(string(out)), err)
	}
	return errors.Join(err, writeFile(execContext, "\n")) // restore the default
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
	l, err := e.interfaceOfType(t.Name, "tun")
	if err != nil {
		return nil, err
	}
	if netlink.Uint8(netlink.Attr(l.data, tunType)) != tunTap {
		return nil, &goneError{"is not of type tap but of type tun"}
	}
	if multi := netlink.Uint8(netlink.Attr(l.data, tunMultiQueue)) != 0; multi != t.MultiQueue {
		return nil, &goneError{fmt.Sprintf("multi_queue is %s, want %s", onOff(multi), onOff(t.MultiQueue))}
	}
	d := append(t.attrs().differs(l), t.usersDiffer(l)...)
	if t.Master == "" {
		return d, nil
	}
	bridge, err := e.Link(Container, t.Master)
	if errors.Is(err, os.ErrNotExist) {
		return append(d, "its bridge "+t.Master+" is missing in the container"), nil
	}
	if err == nil && l.Master != bridge.Index {
		d = append(d, "is not a port of "+t.Master)
	}
	return d, err
}

// usersDiffer compares who may open the link.
func (t *Tap) usersDiffer(l *LinkInfo) (d []string) {
	for _, x := range []struct {
		what string
		want *int
		have []byte
	}{{"owner", t.UID, netlink.Attr(l.data, tunOwner)}, {"group", t.GID, netlink.Attr(l.data, tunGroup)}} {
		if x.want != nil && (x.have == nil || int(netlink.Uint32(x.have)) != *x.want) {
			d = append(d, fmt.Sprintf("%s is not %d", x.what, *x.want))
		}
	}
	return d
}

func (t *Tap) attrs() commonAttrs {
	return commonAttrs{mac: t.MAC, mtu: t.MTU, ownerTag: t.OwnerTag, changed: t.changed}
}

func (t *Tap) without(later Object) Object {
	return withoutSettings(t, later, linkName{Container, t.Name}, func(o *Tap) *LinkSettings { return &o.changed })
}

// restore sets the attributes of the link again. A program that has the link open keeps it.
func (t *Tap) restore(e *Engine) error {
	l, err := e.Link(Container, t.Name)
	if err != nil {
		return err
	}
	if err := e.setLink(t, Container, t.Name, t.attrs()); err != nil {
		return err
	}
	if t.Master != "" {
		master, err := e.LinkIndex(Container, t.Master)
		if err != nil {
			return err
		}
		body := netlink.LinkMessage(l.Index, 0, 0)
		body.Uint32(unix.IFLA_MASTER, uint32(master))
		if err := e.send(t, Container, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: body}, nil); err != nil {
			return err
		}
	}
	if len(t.usersDiffer(l)) == 0 {
		return nil // the kernel refuses to set them while a program has a link with one queue open
	}
	return t.restoreUsers(e)
}

// restoreUsers sets who may open the link.
func (t *Tap) restoreUsers(e *Engine) error {
	fd, err := t.open(e)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return t.claim(fd, 0)
}

func (t *Tap) remove(e *Engine) error { return e.deleteInside(t.Name, "tun", t.OwnerTag) }
