package kernel

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Sysctl is a value under /proc/sys of a namespace.
type Sysctl struct {
	base
	In       Side   `json:",omitzero"`
	Key      string `json:",omitzero"` // below /proc/sys, with slashes, because an interface name may contain a dot
	Value    string `json:",omitzero"`
	Link     string `json:",omitzero"` // the link that the key belongs to; "": the namespace
	IfZero   bool   `json:",omitzero"` // write only if the value is 0: writing ip_forward resets other keys
	KeepZero bool   `json:",omitzero"` // leave 0 alone: somebody turned the feature off
	Optional bool   `json:",omitzero"` // a kernel without the key is not an error
	IsShared bool   `json:",omitzero"`
	Previous string `json:"Was,omitzero"` // the value that remove restores
	// NetnsOnly rejects a key that other namespaces share, because writing it would change the host, too. Its Previous
	// value may be empty. It also sets Stored.
	NetnsOnly bool `json:"Own,omitzero"`
	// Stored is Value as the kernel returns it, if it returns another text: 30000-30001 for 30000,30001.
	Stored string `json:",omitzero"`
}

func (s *Sysctl) kind() string { return "sysctl" }
func (s *Sysctl) Side() Side   { return s.In }
func (s *Sysctl) Shared() bool { return s.IsShared }

func (s *Sysctl) on() linkName {
	if s.Link == "" {
		return linkName{}
	}
	return linkName{s.In, s.Link}
}

func (s *Sysctl) String() string {
	key := s.Key
	if !strings.Contains(key, ".") {
		key = strings.ReplaceAll(key, "/", ".")
	}
	return "sysctl -w " + key + "=" + s.Value
}

// phase returns announcing for a key that makes the kernel announce a link's addresses.
func (s *Sysctl) phase() phase {
	if s.Link != "" && (strings.HasSuffix(s.Key, "/arp_notify") || strings.HasSuffix(s.Key, "/ndisc_notify")) {
		return announcing
	}
	return creating
}

func (s *Sysctl) ensure(e *Engine) error {
	if s.In == Container && s.Link != "" && s.Key == "net/ipv4/conf/"+s.Link+"/arp_notify" {
		return s.setByNetlink(e, devconfARPNotify)
	}
	if err := e.flush(); err != nil {
		return err
	}
	switch {
	case s.NetnsOnly:
		return s.ensureNetnsOnly(e)
	case s.opensLoopback():
		e.later = append(e.later, later{s, func() error { return s.set(e) }})
		return nil
	}
	return s.set(e)
}

// opensLoopback reports whether the key opens services on 127.0.0.1 to a link. nftables rules close them again, so they
// come first.
func (s *Sysctl) opensLoopback() bool {
	return s.IsShared && strings.HasSuffix(s.Key, "/route_localnet")
}

// set writes the value, unless it is in place or stays.
func (s *Sysctl) set(e *Engine) error {
	return e.InNetns(s.In, func() error {
		if s.IfZero || s.KeepZero || s.IsShared || s.busyWaits() {
			have, err := readSysctl(s.Key)
			if err == nil && (have == s.Value || s.leaves(have)) {
				return nil
			}
		}
		return writeSysctl(s.Key, s.Value, s.Optional)
	})
}

// leaves reports whether the object does not change a value.
func (s *Sysctl) leaves(have string) bool {
	return s.IfZero && have != "0" || s.KeepZero && have == "0"
}

// busyWaits reports whether writing the key keeps a processor busy: while the kernel's global lock is taken, the kernel
// restarts the system call again and again (addrconf_disable_ipv6). The value is mostly in place already.
func (s *Sysctl) busyWaits() bool { return strings.HasSuffix(s.Key, "/disable_ipv6") }

const (
	iflaInetConf     = 1  // linux/if_link.h
	devconfARPNotify = 22 // linux/ip.h: IPV4_DEVCONF_ARP_NOTIFY
)

// setByNetlink sets a key of a link's IPv4 configuration with a queued request. That avoids entering the namespace to
// open a file.
func (s *Sysctl) setByNetlink(e *Engine, key uint16) error {
	i, err := e.LinkIndex(s.In, s.Link)
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(s.Value, 10, 32)
	if err != nil {
		return err
	}
	body := netlink.LinkMessage(i, 0, 0)
	body.Nest(unix.IFLA_AF_SPEC, func(b *netlink.Buffer) {
		b.Nest(unix.AF_INET, func(b *netlink.Buffer) {
			b.Nest(iflaInetConf, func(b *netlink.Buffer) { b.Uint32(key, uint32(n)) })
		})
	})
	return e.send(s, s.In, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: body}, nil)
}

func (s *Sysctl) diff(e *Engine) (d []string, err error) {
	err = e.InNetns(s.In, func() error {
		have, err := readSysctl(s.Key)
		switch {
		case s.Optional && errors.Is(err, os.ErrNotExist):
			return nil
		case s.NetnsOnly && errors.Is(err, os.ErrPermission): // the key can only be written
			return nil
		case err != nil:
			return err
		case !s.matches(have) && !s.leaves(have):
			d = []string{"is " + have}
		}
		return nil
	})
	return d, err
}

func (s *Sysctl) changesEarlier() {}

// without returns nil if a later object sets the key, too.
func (s *Sysctl) without(later Object) Object {
	if l, ok := later.(*Sysctl); ok && l.In == s.In && l.Key == s.Key {
		return nil
	}
	return s
}

// matches reports whether a key's text is the wanted value.
func (s *Sysctl) matches(have string) bool {
	return sameValue(have, s.Value) || s.Stored != "" && sameValue(have, s.Stored)
}

// HasStored reports whether the kernel stored another text than the object's.
func HasStored(o Object) bool {
	x, ok := o.(interface{ hasStored() bool })
	return ok && x.hasStored()
}

func (s *Sysctl) hasStored() bool { return s.Stored != "" }

func (s *Sysctl) remove(e *Engine) error {
	var err error
	switch {
	case s.Previous != "":
		err = e.InNetns(s.In, func() error { return writeSysctl(s.Key, s.Previous, true) })
	case s.NetnsOnly && !isSecret(s.Key): // a secret cannot be taken back
		err = e.InNetns(s.In, s.clear)
	}
	if refusesFormer(err) { // also a key that ADD could not write
		return nil
	}
	return err
}

// clear empties a key, for example a list of ports. The kernel ignores a write of no bytes.
func (s *Sysctl) clear() error {
	if have, err := readSysctl(s.Key); err != nil || have == "" {
		return nil // the key is gone, can only be written, or is empty
	}
	return writeSysctl(s.Key, "\n", true)
}

func (s *Sysctl) ensureNetnsOnly(e *Engine) error {
	host := sysctlInode(s.Key)
	isHost := e.ns[s.In] != nil && e.ns[s.In].SameAs(e.ns[Host]) // the caller allowed it
	return e.InNetns(s.In, func() error {
		own := sysctlInode(s.Key)
		switch {
		case own == 0:
			return fmt.Errorf("the container's namespace has no such key: only the host has it, or the kernel lacks the feature: %w", os.ErrNotExist)
		case own == host && !isHost:
			return fmt.Errorf("all namespaces share the key, so writing it would change the host: %w", unix.EPERM)
		}
		e.noteCreated(s) // from here on the value may have changed
		if err := writeSysctl(s.Key, s.Value, false); err != nil {
			return err
		}
		have, err := readSysctl(s.Key)
		if errors.Is(err, os.ErrPermission) {
			return nil // the key can only be written
		}
		if s.Stored = ""; !sameValue(have, s.Value) {
			s.Stored = have
		}
		return err
	})
}

// sysctlInode returns the inode of a key's file, which differs between namespaces, or 0 if there is no such key.
func sysctlInode(key string) uint64 {
	var st unix.Stat_t
	if unix.Stat(sysctlPath(key), &st) != nil {
		return 0
	}
	return st.Ino
}

// sameValue compares values like the kernel: any white space separates numbers.
func sameValue(a, b string) bool { return slices.Equal(strings.Fields(a), strings.Fields(b)) }

// Sysctl returns the value of a key, written with slashes.
func (e *Engine) Sysctl(s Side, key string) (v string, err error) {
	err = e.InNetns(s, func() error {
		v, err = readSysctl(key)
		return err
	})
	return v, err
}

// InNetns runs f in the namespace of a side.
func (e *Engine) InNetns(s Side, f func() error) error {
	if s == Host {
		return f()
	}
	if e.ns[s] == nil {
		return errNoContainer
	}
	return e.ns[s].Do(f)
}

var sysctlDir = "/proc/sys"

// UseSysctlDir sets the directory of the kernel's settings, instead of /proc/sys. Call it before anything else of this
// package. A container whose /proc/sys is read-only needs it: there, a writable mount of the host's /proc/sys/net can be
// at another place. The kernel finds the settings of the calling thread's namespace through any mount.
func UseSysctlDir(dir string) { sysctlDir = dir }

func sysctlPath(key string) string { return sysctlDir + "/" + key }

// The functions below use plain system calls, because package os would register each file with the runtime's poller.

// isSecret reports whether a key is the secret from which the kernel derives a link's addresses (RFC 7217). It cannot be
// unset, and reading it before it is set is an error (EIO).
func isSecret(key string) bool { return strings.HasSuffix(key, "/stable_secret") }

func readSysctl(key string) (string, error) {
	fd, err := openSysctl(key, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	// The kernel returns as much of a value as fits into the buffer, and nothing to a second read.
	for size := 256; ; size *= 16 {
		b := make([]byte, size)
		n, err := unix.Pread(fd, b, 0)
		if err == unix.EIO && isSecret(key) {
			return "", nil
		}
		if err != nil || n < size || size > maxSysctl {
			return strings.TrimSpace(string(b[:max(n, 0)])), err
		}
	}
}

// maxSysctl is larger than any value: a list of all odd ports has 190 kB.
const maxSysctl = 1 << 19

func writeSysctl(key, value string, optional bool) error {
	fd, err := openSysctl(key, unix.O_WRONLY)
	if optional && errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := writeAll(fd, []byte(value)); err != nil {
		return &os.PathError{Op: "write " + value + " to", Path: sysctlPath(key), Err: err}
	}
	return nil
}

// writeAll writes a value. Of a list that is larger than a page, the kernel takes a page, and adds what follows.
func writeAll(fd int, value []byte) error {
	long := len(value) >= os.Getpagesize()
	n, err := unix.Write(fd, value)
	for err == nil && n > 0 && n < len(value) && long {
		value = value[n:]
		n, err = unix.Write(fd, value)
	}
	if err == nil && n < len(value) {
		err = io.ErrShortWrite
	}
	return err
}

func openSysctl(key string, flags int) (int, error) {
	path := sysctlPath(key)
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err == nil {
			return fd, nil
		}
		if err != unix.EINTR {
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// Forwarding returns the sysctls with which a namespace forwards packets of a family. Uplinks are links of the namespace
// with a default route from router advertisements. With IPv6 forwarding and accept_ra 1, the default, the kernel would
// ignore advertisements, and the route would expire: accept_ra 2 accepts them. With accept_ra 0, a program handles the
// advertisements, for example systemd-networkd, and the kernel must not.
func Forwarding(in Side, six bool, uplinks []string) (out Objects) {
	if !six {
		return Objects{&Sysctl{In: in, Key: "net/ipv4/ip_forward", Value: "1", IfZero: true, IsShared: true}}
	}
	for _, l := range uplinks {
		out = append(out, &Sysctl{In: in, Key: "net/ipv6/conf/" + l + "/accept_ra", Value: "2", KeepZero: true, IsShared: true, Optional: true})
	}
	return append(out, &Sysctl{In: in, Key: "net/ipv6/conf/all/forwarding", Value: "1", IfZero: true, IsShared: true})
}
