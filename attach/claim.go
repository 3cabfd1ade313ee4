package attach

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/filelock"
	"github.com/fairlead/fairlead/kernel"
)

// A host port on every address and the same port on one of them exclude each
// other, which no set of the kernel can say. So each protocol and port has a
// small file, lock and list in one: a line a claim, the host address and the
// owner's mark.

// Claim takes host ports for an owner and keeps their files locked until
// unlock. A living claim of another is an error that names its owner; a dead
// one is dropped.
func (d *Dir) Claim(ctx context.Context, o kernel.Owner, ports []Port) (unlock func(), err error) {
	var open []*os.File
	unlock = func() {
		for _, f := range open {
			_ = f.Close()
		}
	}
	for _, name := range claimFiles(ports) {
		f, err := d.lockClaims(ctx, name)
		if err != nil {
			unlock()
			return nil, err
		}
		open = append(open, f)
		if err := d.claimIn(f, name, o, ports); err != nil {
			unlock()
			return nil, errors.Join(err, d.Unclaim(o, ports))
		}
	}
	return unlock, nil
}

// Unclaim frees an owner's host ports.
func (d *Dir) Unclaim(o kernel.Owner, ports []Port) error {
	var errs []error
	for _, name := range claimFiles(ports) {
		f, err := d.lockClaims(context.Background(), name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		kept := slices.DeleteFunc(readClaims(f), func(c claim) bool { return o.Owns(c.mark) })
		if len(kept) == 0 {
			errs = append(errs, os.Remove(f.Name()))
		} else {
			errs = append(errs, writeClaims(f, kept))
		}
		_ = f.Close()
	}
	return errors.Join(errs...)
}

type claim struct{ hostIP, mark string }

// claimFiles are the names of the files, in the one order in which all lock them.
func claimFiles(ports []Port) (out []string) {
	for _, p := range ports {
		out = append(out, claimFile(p))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func claimFile(p Port) string { return fmt.Sprintf("%s-%d", p.Protocol, p.HostPort) }

// lockClaims opens and locks a file. One that was deleted meanwhile (its last
// claim ended) is opened anew: its lock protects nothing.
func (d *Dir) lockClaims(ctx context.Context, name string) (*os.File, error) {
	dir := filepath.Join(filepath.Dir(d.path), "hostports")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("claim host port %s: %w", name, err)
	}
	path := filepath.Join(dir, name)
	var locked *os.File
	err := filelock.Until(ctx, path, func() (bool, error) {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return false, err
		}
		if ok, err := filelock.Try(int(f.Fd())); !ok || err != nil || !current(f) {
			_ = f.Close()
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

// current tells whether the path of an open file still names it.
func current(f *os.File) bool {
	open, err1 := f.Stat()
	named, err2 := os.Stat(f.Name())
	return err1 == nil && err2 == nil && os.SameFile(open, named)
}

func readClaims(f *os.File) (out []claim) {
	raw, err := os.ReadFile(f.Name())
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(raw)) {
		ip, mark, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if ok && mark != "" {
			out = append(out, claim{ip, mark})
		}
	}
	return out
}

// writeClaims appends nothing to a torn file: it writes the whole anew.
func writeClaims(f *os.File, list []claim) error {
	var b strings.Builder
	for _, c := range list {
		b.WriteString(c.hostIP + " " + c.mark + "\n")
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(b.String()), 0)
	return err
}

func (d *Dir) claimIn(f *os.File, name string, o kernel.Owner, ports []Port) error {
	list := readClaims(f)
	for _, p := range ports {
		if claimFile(p) != name {
			continue
		}
		mine := claim{p.HostIP, o.Mark()}
		if mine.hostIP == "" {
			mine.hostIP = "*"
		}
		for _, c := range list {
			if !o.Owns(c.mark) && overlap(c.hostIP, mine.hostIP) && d.Alive(c.mark) {
				return cni.Errorf(cni.CodeInvalidNetworkConfig, "host port %d/%s on %s is already taken by %s",
					p.HostPort, p.Protocol, words(c.hostIP), describe(c.mark))
			}
		}
		list = append(list, mine)
	}
	return writeClaims(f, slices.DeleteFunc(list, func(c claim) bool { return !o.Owns(c.mark) && !d.Alive(c.mark) }))
}

// overlap tells whether two host addresses meet: the same one, or one of them
// every address of its family ("*": of both).
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

func words(hostIP string) string {
	if hostIP == "*" {
		return "every address"
	}
	return hostIP
}

func describe(mark string) string {
	if o, ok := kernel.ParseMark(mark); ok {
		return fmt.Sprintf("container %s (network %s, interface %s)", o.ContainerID, o.Network, o.IfName)
	}
	return mark
}

// DropClaims drops the claims of host ports whose owner's mark is dead.
func (d *Dir) DropClaims(dead func(mark string) bool) error {
	dir := filepath.Join(filepath.Dir(d.path), "hostports")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		f, err := d.lockClaims(context.Background(), e.Name())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all := readClaims(f)
		kept := slices.DeleteFunc(slices.Clone(all), func(c claim) bool { return dead(c.mark) })
		switch {
		case len(kept) == 0:
			errs = append(errs, os.Remove(f.Name()))
		case len(kept) < len(all):
			errs = append(errs, writeClaims(f, kept))
		}
		_ = f.Close()
	}
	return errors.Join(errs...)
}
