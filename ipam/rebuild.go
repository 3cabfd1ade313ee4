package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
)

// rebuild builds the index from the directory. It reads only files that the old index, if there is one, does not know
// exactly.
func (s *Store) rebuild(old *index) error {
	if err := s.clearTemporary(); err != nil {
		return err
	}
	s.clearSpares()
	if old != nil {
		if err := s.removeTorn(old.header); err != nil {
			return err
		}
	}
	known, err := s.knownRecords(old)
	if err != nil {
		return err
	}
	addrs, err := s.dir.addresses()
	if err != nil {
		return err
	}
	records := make([]record, 0, len(addrs))
	for _, a := range addrs {
		r, err := s.recordOf(a, known)
		if err != nil {
			return err
		}
		records = append(records, r)
	}
	return s.use(records, 0)
}

// knownRecords returns the old index's records. It adds the record of an interrupted allocation whose file is in place.
func (s *Store) knownRecords(old *index) (map[netip.Addr]record, error) {
	known := map[netip.Addr]record{}
	if old == nil {
		return known, nil
	}
	records, err := old.all()
	if err != nil && !errors.Is(err, errInvalidIndex) {
		return nil, err
	}
	for _, r := range records {
		known[r.addr] = r
	}
	p := old.header.pending
	if old.header.clean || !p.addr.IsValid() || !s.isPending(p) {
		return known, nil
	}
	ino, ctime, err := s.dir.stat(p.addr)
	since := p.since
	if since == 0 {
		since = Uptime()
	}
	known[p.addr] = record{owner: p.owner, addr: p.addr, ino: ino, ctime: ctime, reserved: since}
	return known, err
}

// recordOf returns what is known of an address file, or reads it.
func (s *Store) recordOf(a netip.Addr, known map[netip.Addr]record) (record, error) {
	ino, ctime, err := s.dir.stat(a)
	if err != nil {
		return record{}, err
	}
	if r, ok := known[a]; ok && r.ino == ino && r.ctime == ctime {
		return r, nil
	}
	owner, err := s.dir.owner(a)
	if err != nil {
		return record{}, err
	}
	return record{owner: ownerKey(owner, a), addr: a, ino: ino, ctime: ctime}, nil
}

// withRebuild runs an operation, and repeats it once if the index turns out to be invalid.
func (s *Store) withRebuild(f func() error) error {
	err := f()
	if !errors.Is(err, errInvalidIndex) {
		return err
	}
	old := s.index
	if err := s.rebuild(old); err != nil {
		return err
	}
	old.close()
	return f()
}

// use builds an index of records, stores it and uses it. If the disk is full, the index serves this process only, so
// that addresses can still be released.
func (s *Store) use(records []record, spares uint32) error {
	x, err := buildIndex(header{boot: s.boot, spares: spares}, records)
	if err != nil {
		return err
	}
	if s.storeErr = s.makeTemp(); s.storeErr == nil {
		s.storeErr = x.store(s.temp + "/index")
	}
	s.index = x
	s.changing = true
	s.invalid = s.storeErr != nil
	s.endChange()
	return nil
}

// grow enlarges the index before it gets slow.
func (s *Store) grow() error {
	records, err := s.index.all()
	if err != nil {
		return err
	}
	old := s.index
	defer old.close()
	return s.use(records, old.header.spares)
}

func (s *Store) makeTemp() error {
	if err := os.MkdirAll(s.temp, 0o700); err != nil {
		return fmt.Errorf("create the directory of the address index: %w", err)
	}
	return nil
}

// temporary returns the path of an address file before it is linked into place.
func (s *Store) temporary() string {
	if s.reused != "" {
		return s.reused
	}
	return s.temp + "/address"
}

// clearTemporary removes what a killed process left. The file may be linked into place already, and removing it later
// would change the address file's change time. On a read-only filesystem it does no harm.
func (s *Store) clearTemporary() error {
	err := retry(func() error { return syscall.Unlink(s.temporary()) })
	if err == nil || err == syscall.ENOENT || err == syscall.EROFS {
		s.reused = ""
		return nil
	}
	return fmt.Errorf("clean up after an interrupted allocation: %w", &os.PathError{Op: "remove", Path: s.temporary(), Err: err})
}
