package ipam

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
)

// Lookup returns an owner's addresses, including those of files that contain only its container ID.
func (s *Store) Lookup(o Owner) ([]netip.Addr, error) {
	var exact, legacy []record
	err := s.withRebuild(func() (err error) { exact, legacy, err = s.lookup(o); return err })
	return addrsOf(append(exact, legacy...)), err
}

func addrsOf(records []record) (addrs []netip.Addr) {
	for _, r := range records {
		addrs = append(addrs, r.addr)
	}
	return addrs
}

// lookup finds an owner's addresses. It reads every file: the index only says where to look, and a wrong index is
// rebuilt.
func (s *Store) lookup(o Owner) (exact, legacy []record, err error) {
	o.ContainerID = strings.TrimSpace(o.ContainerID)
	exact, exactOK, err := s.verified(o)
	if err != nil {
		return nil, nil, err
	}
	legacyOK := true
	if o.IfName != "" {
		legacy, legacyOK, err = s.verified(Owner{ContainerID: o.ContainerID})
	}
	if err == nil && !(exactOK && legacyOK) {
		err = errInvalidIndex
	}
	return exact, legacy, err
}

// verified returns the records of exactly this owner whose files agree.
func (s *Store) verified(o Owner) (records []record, ok bool, err error) {
	found, err := s.index.find(ownerKey(o, netip.Addr{}))
	if err != nil {
		return nil, false, err
	}
	ok = true
	for _, r := range found {
		owner, err := s.dir.owner(r.addr)
		switch {
		case err == nil && owner == o:
			records = append(records, r)
		case err == nil || errors.Is(err, os.ErrNotExist):
			ok = false
		default:
			return nil, false, err
		}
	}
	return records, ok, nil
}

// Release frees and returns an owner's addresses. Files that contain only the container ID are freed if no file also
// has the interface. An owner without addresses is not an error.
func (s *Store) Release(o Owner) (freed []netip.Addr, err error) {
	err = s.withRebuild(func() error { freed, err = s.release(o); return err })
	return freed, err
}

func (s *Store) release(o Owner) ([]netip.Addr, error) {
	records, legacy, err := s.lookup(o)
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		records = legacy
	}
	return s.free(records)
}

// free removes the files of records and continues after errors.
func (s *Store) free(records []record) (freed []netip.Addr, err error) {
	if len(records) == 0 {
		return nil, nil
	}
	errs := []error{s.beginChange(pendingAdd{})}
	for _, r := range records {
		if err := s.removeOrSpare(r); err != nil {
			errs = append(errs, err)
			continue
		}
		freed = append(freed, r.addr)
		errs = append(errs, s.drop(r))
	}
	s.endChange()
	return freed, errors.Join(errs...)
}

// drop deletes a record from the index. If it stayed, the address would have no owner and never be allocated again.
func (s *Store) drop(r record) error {
	err := s.index.drop(r)
	s.invalid = s.invalid || err != nil
	return err
}

// remove removes an address file; a missing file is not an error.
func (s *Store) remove(a netip.Addr) error {
	err := retry(func() error { return syscall.Unlink(s.dir.file(a)) })
	if err != nil && err != syscall.ENOENT {
		return &os.PathError{Op: "release", Path: s.dir.file(a), Err: err}
	}
	return nil
}
