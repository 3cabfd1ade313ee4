package attach

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/filelock"
	"github.com/fairlead/fairlead/kernel"
)

// A host port on every address and the same port on one address exclude each other, which no kernel set can express. So
// each protocol and port has a small file, which is lock and list in one: one line per claim with the host address and
// the owner tag.

// Claim takes host ports for an owner and keeps their files locked until unlock. If a living attachment of another
// container has a port, the error names it; a dead claim is dropped. Attachments of one container do not exclude each
// other, because runtimes request all ports of a container for each of its networks.
func (d *Dir) Claim(ctx context.Context, o kernel.Owner, ports []Port) (unlock func(), err error) {
	var open []*os.File
	unlock = func() {
		for _, f := range open {
			_ = filelock.Close(f)
		}
	}
	for _, name := range claimFiles(ports) {
		f, err := d.lockClaims(ctx, name, os.O_CREATE)
		if err != nil {
			unlock()
			return nil, err
		}
		open = append(open, f)
		if err := d.claimIn(f, name, o, ports); err != nil {
			unlock()
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unclaimTime)
			defer cancel()
			return nil, errors.Join(err, d.Unclaim(ctx, o, ports))
		}
	}
	return unlock, nil
}

// unclaimTime limits the freeing of the ports of an ADD that failed. The next ADD, and GC, drop what remains.
const unclaimTime = 10 * time.Second

// Sharing returns other attachments of the owner's container that claimed some of the same host ports.
func (d *Dir) Sharing(o kernel.Owner, ports []Port) (out []kernel.Owner) {
	for _, name := range claimFiles(ports) {
		list, err := readClaims(d.claimPath(name))
		if err != nil {
			continue // no claims, or unreadable
		}
		for _, c := range list.claims {
			if other, err := d.ownerOf(c.tag); err == nil && isOther(o, other) && !slices.Contains(out, other) {
				out = append(out, other)
			}
		}
	}
	return out
}

// Unclaim frees an owner's host ports. If the context ends while another ADD has the file of a port locked, the error is
// "try again later" (11).
func (d *Dir) Unclaim(ctx context.Context, o kernel.Owner, ports []Port) error {
	var errs []error
	for _, name := range claimFiles(ports) {
		errs = append(errs, d.clearClaim(ctx, name, o.Owns))
	}
	return errors.Join(errs...)
}

// DropClaims frees the host ports of owners for which dead returns true.
func (d *Dir) DropClaims(ctx context.Context, dead func(tag string) bool) error {
	files, err := os.ReadDir(d.claimPath(""))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range files {
		errs = append(errs, d.clearClaim(ctx, e.Name(), dead))
	}
	return errors.Join(errs...)
}

// clearClaim removes dead claims from a file, and the file with its last claim.
func (d *Dir) clearClaim(ctx context.Context, name string, dead func(tag string) bool) error {
	f, err := d.lockClaims(ctx, name, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer filelock.Close(f)
	list, err := readClaims(f.Name())
	if err != nil {
		return err
	}
	kept := slices.DeleteFunc(slices.Clone(list.claims), func(c claim) bool { return dead(c.tag) })
	if len(kept) == 0 {
		return os.Remove(f.Name())
	}
	return list.markEnded(f, dead)
}

// claimFiles returns the names of the files, in the order in which everybody locks them.
func claimFiles(ports []Port) (out []string) {
	for _, p := range ports {
		out = append(out, claimFile(p))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func claimFile(p Port) string { return fmt.Sprintf("%s-%d", p.Protocol, p.HostPort) }

func (d *Dir) claimPath(name string) string {
	return filepath.Join(filepath.Dir(d.path), "hostports", name)
}

// lockClaims opens and locks a file. If the file was deleted in between (its last claim ended), it opens it again,
// because the lock of a deleted file protects nothing. create is os.O_CREATE, or 0: then the error may be os.ErrNotExist.
func (d *Dir) lockClaims(ctx context.Context, name string, create int) (*os.File, error) {
	path := d.claimPath(name)
	if create != 0 {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, fmt.Errorf("claim host port %s: %w", name, err)
		}
	}
	var locked *os.File
	err := filelock.Until(ctx, path, func() (bool, error) {
		f, err := os.OpenFile(path, os.O_RDWR|create|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return false, err
		}
		if ok, err := filelock.Try(int(f.Fd())); !ok || err != nil || !current(f) {
			_ = filelock.Close(f)
			return false, err
		}
		locked = f
		return true, nil
	})
	var busy *filelock.Busy
	if errors.As(err, &busy) {
		return nil, cni.Errorf(cni.CodeTryAgainLater, "claim host port %s: %w", name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("claim host port %s: %w", name, err)
	}
	return locked, nil
}

// current reports whether an open file is still the one at its path.
func current(f *os.File) bool {
	open, err1 := f.Stat()
	named, err2 := os.Stat(f.Name())
	return err1 == nil && err2 == nil && os.SameFile(open, named)
}

func (d *Dir) claimIn(f *os.File, name string, o kernel.Owner, ports []Port) error {
	list, err := readClaims(f.Name())
	if err != nil {
		return err
	}
	var more []claim
	for _, p := range ports {
		if claimFile(p) != name {
			continue
		}
		own := claim{hostIP: p.HostIP, tag: o.Tag()}
		if own.hostIP == "" {
			own.hostIP = "*"
		}
		for _, c := range list.claims {
			if o.Owns(c.tag) || !overlap(c.hostIP, own.hostIP) || !d.Alive(c.tag) {
				continue
			}
			other, err := d.ownerOf(c.tag)
			if err != nil && !isAbsent(err) {
				return fmt.Errorf("read the owners of host port %d/%s: %w", p.HostPort, p.Protocol, err)
			}
			if err == nil && !isOther(o, other) {
				return cni.Errorf(cni.CodeInvalidNetworkConfig, "host port %d/%s on %s is already taken by container %s (network %s, interface %s)%s",
					p.HostPort, p.Protocol, words(c.hostIP), other.ContainerID, other.Network, other.IfName, d.namespaceOf(other))
			}
		}
		more = append(more, own)
	}
	gone := func(tag string) bool { return o.Owns(tag) || !d.Alive(tag) }
	if err := list.markEnded(f, gone); err != nil {
		return err
	}
	list.claims = slices.DeleteFunc(list.claims, func(c claim) bool { return gone(c.tag) })
	return list.add(f, more)
}

// overlap reports whether two host addresses conflict: they are equal, or one is the wildcard of its family ("*": of
// both).
func overlap(a, b string) bool {
	if a == b || a == "*" || b == "*" {
		return true
	}
	x, err1 := netip.ParseAddr(a)
	y, err2 := netip.ParseAddr(b)
	if err1 != nil || err2 != nil || x.Is4() != y.Is4() {
		return false
	}
	return x == y || x.IsUnspecified() || y.IsUnspecified()
}

// namespaceOf names the namespace of an attachment for a message, because the runtime's ID of a container may tell a person
// nothing. Without a record it is "".
func (d *Dir) namespaceOf(o kernel.Owner) string {
	r, err := d.Read(o)
	if err != nil || r.Netns == "" {
		return ""
	}
	return " in " + r.Netns
}

func words(hostIP string) string {
	if hostIP == "*" {
		return "every address"
	}
	return hostIP
}

// isOther reports whether two owners are two attachments of one container.
func isOther(a, b kernel.Owner) bool { return a != b && a.ContainerID == b.ContainerID }

// SameContainer reports whether two owner tags belong to two attachments of one container. Of a tag with hashes, only
// the record tells the container.
func (d *Dir) SameContainer(tag, other string) bool {
	a, err1 := d.ownerOf(tag)
	b, err2 := d.ownerOf(other)
	return err1 == nil && err2 == nil && isOther(a, b)
}

func (d *Dir) ownerOf(tag string) (kernel.Owner, error) {
	if o, ok := kernel.ParseOwnerTag(tag); ok {
		return o, nil
	}
	r, err := d.byTag(tag)
	if err != nil {
		return kernel.Owner{}, err
	}
	return r.Owner(), nil
}
