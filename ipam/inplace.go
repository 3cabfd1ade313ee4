package ipam

import (
	"errors"
	"net/netip"
	"os"
	"syscall"
)

// The network's directory may be a symbolic link or a mount, so that it is on another filesystem than the temporary file,
// or its filesystem may have no hard links. Then an address file is created in place.

// cannotLink reports whether an error of link(2) means that no attempt can succeed.
func cannotLink(err error) bool {
	for _, never := range []error{syscall.EXDEV, syscall.EPERM, syscall.EOPNOTSUPP, syscall.ENOSYS} {
		if errors.Is(err, never) {
			return true
		}
	}
	return false
}

// createInPlace creates an address file. If the process is killed before it writes the owner, the next one removes the
// empty file, see removeTorn.
func (s *Store) createInPlace(o Owner, a netip.Addr) error {
	if err := s.beginChange(pendingAdd{ownerKey(o, a), a, inPlace, Uptime()}); err != nil {
		return err
	}
	f, err := openFile(s.dir.file(a), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(o.text()); err != nil {
		return errors.Join(err, s.remove(a))
	}
	return nil
}

// inPlace is the inode of a pending address whose file has no temporary name.
const inPlace = 0

// removeTorn removes the file of an interrupted createInPlace.
func (s *Store) removeTorn(h header) error {
	p := h.pending
	if h.clean || !p.addr.IsValid() || p.ino != inPlace {
		return nil
	}
	data, err := readSmall(s.dir.file(p.addr))
	if err != nil || len(data) > 0 { // it does not exist, or it is complete
		return nil
	}
	return s.remove(p.addr)
}
