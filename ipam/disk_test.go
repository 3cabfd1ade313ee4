package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// smallDiskEnv makes the test binary run in its own mount namespace, where a full and a read-only disk can be set up.
const smallDiskEnv = "FAIRLEAD_IPAM_SMALL_DISK"

func TestSmallDisk(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), smallDiskEnv+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func onSmallDisk(dir string) error {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		return err
	}
	sets, err := CompleteSets([]RangeSet{{{Subnet: netip.MustParsePrefix("10.1.0.0/16")}}})
	if err != nil {
		return err
	}
	n, err := fillDisk(dir, sets)
	if err != nil {
		return err
	}
	if err := allStillThere(dir, n); err != nil {
		return err
	}
	if err := otherDisk(dir+"/other", sets); err != nil {
		return err
	}
	if err := readOnlyCursor(dir); err != nil {
		return err
	}
	return readOnlyDisk(dir, sets)
}

// fillDisk allocates until the disk is full, which the error must say.
func fillDisk(dir string, sets []RangeSet) (n int, err error) {
	for ; n < 5000; n++ {
		err := onStore(dir, func(s *Store) error {
			_, err := s.Allocate(Owner{fmt.Sprint("c", n), "eth0"}, sets, nil)
			return err
		})
		if errors.Is(err, syscall.ENOSPC) {
			return n, nil
		}
		if err != nil {
			return n, fmt.Errorf("allocation %d: want an error that says the disk is full: %w", n, err)
		}
	}
	return n, errors.New("the disk does not fill up")
}

// allStillThere checks that every address is complete, and releases them on the full disk, where the index is outdated.
func allStillThere(dir string, n int) error {
	d := directory(filepath.Join(dir, "net"))
	addrs, err := d.addresses()
	if err != nil || len(addrs) != n {
		return fmt.Errorf("%d addresses are allocated, want %d: %w", len(addrs), n, err)
	}
	if err := os.Remove(d.file(addrs[0])); err != nil {
		return err
	}
	if err := os.WriteFile(dir+"/filler", make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("fill the disk: %w", err)
	}
	for i := range n {
		err := onStore(dir, func(s *Store) error { _, err := s.Release(Owner{fmt.Sprint("c", i), "eth0"}); return err })
		if err != nil {
			return fmt.Errorf("release on a full disk: %w", err)
		}
	}
	if addrs, err = d.addresses(); err != nil || len(addrs) != 0 {
		return fmt.Errorf("%d addresses are left: %w", len(addrs), err)
	}
	return os.Remove(dir + "/filler")
}

// otherDisk has the network's directory on another disk than the index, where a temporary file cannot be linked to.
func otherDisk(dir string, sets []RangeSet) error {
	if err := os.MkdirAll(dir+"/net", 0o700); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", dir+"/net", "tmpfs", 0, "size=64k"); err != nil {
		return err
	}
	d, o := directory(dir+"/net"), Owner{"a", "eth0"}
	take := func() error {
		return onStore(dir, func(s *Store) error { _, err := s.Allocate(o, sets, nil); return err })
	}
	if err := take(); err != nil {
		return fmt.Errorf("allocate on another disk: %w", err)
	}
	a := netip.MustParseAddr("10.1.0.2")
	if owner, err := d.owner(a); err != nil || owner != o {
		return fmt.Errorf("%s belongs to %q on another disk: %w", a, owner, err)
	}
	next := a.Next()
	for text, left := range map[string]int{"": 1, o.text(): 2} { // a kill before and after the owner is written
		err := onStore(dir, func(s *Store) error { return s.beginChange(pendingAdd{ownerKey(o, next), next, inPlace, Uptime()}) })
		if err == nil {
			err = os.WriteFile(d.file(next), []byte(text), 0o600)
		}
		if err == nil {
			err = onStore(dir, func(*Store) error { return nil })
		}
		addrs, err2 := d.addresses()
		if err != nil || err2 != nil || len(addrs) != left {
			return fmt.Errorf("%v after a kill with the content %q, want %d addresses: %w", addrs, text, left, errors.Join(err, err2))
		}
		_ = os.Remove(d.file(next))
	}
	return onStore(dir, func(s *Store) error {
		freed, err := s.Release(o)
		if err != nil || len(freed) != 1 {
			return fmt.Errorf("release on another disk: %v, %w", freed, err)
		}
		return nil
	})
}

// readOnlyCursor lets an allocation fail after its address is in the index. The address must be free again, also if the
// cursor on the disk is right by chance, because the range has one address only.
func readOnlyCursor(dir string) error {
	sets, err := CompleteSets([]RangeSet{{{Subnet: netip.MustParsePrefix("10.2.0.0/30")}}})
	if err != nil {
		return err
	}
	try := func(id string) error {
		return onStore(dir, func(s *Store) error {
			if _, err := s.Allocate(Owner{id, "eth0"}, sets, nil); err != nil {
				return err
			}
			_, err := s.Release(Owner{id, "eth0"})
			return err
		})
	}
	if err := try("first"); err != nil {
		return err
	}
	cursor := directory(filepath.Join(dir, "net")).lastFile(0)
	if err := syscall.Mount(cursor, cursor, "", syscall.MS_BIND, ""); err != nil {
		return err
	}
	if err := syscall.Mount("", cursor, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""); err != nil {
		return err
	}
	if err := try("refused"); !errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("allocation with a read-only cursor: %w", err)
	}
	if err := syscall.Unmount(cursor, syscall.MNT_DETACH); err != nil {
		return err
	}
	if err := try("next"); err != nil {
		return fmt.Errorf("allocation after the failed one: %w", err)
	}
	return nil
}

// readOnlyDisk wants an error from operations that write, and none from those that read.
func readOnlyDisk(dir string, sets []RangeSet) error {
	o := Owner{"ro", "eth0"}
	if err := onStore(dir, func(s *Store) error { _, err := s.Allocate(o, sets, nil); return err }); err != nil {
		return err
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		return err
	}
	return onStore(dir, func(s *Store) error {
		if addrs, err := s.Lookup(o); err != nil || len(addrs) != 1 {
			return fmt.Errorf("look-up on a read-only disk: %v, %w", addrs, err)
		}
		if _, err := s.Release(o); !errors.Is(err, syscall.EROFS) {
			return fmt.Errorf("release on a read-only disk: %w", err)
		}
		if _, err := s.Allocate(Owner{"new", "eth0"}, sets, nil); !errors.Is(err, syscall.EROFS) {
			return fmt.Errorf("allocation on a read-only disk: %w", err)
		}
		return nil
	})
}

func onStore(dir string, f func(*Store) error) error {
	s, err := Open(context.Background(), dir, "net", Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	return f(s)
}
