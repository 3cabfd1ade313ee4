package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
)

// IP is an allocated address.
type IP struct {
	Address netip.Prefix // the address, with its subnet's prefix length
	Gateway netip.Addr
}

// ErrExhausted means that all addresses of a range set are allocated.
var ErrExhausted = errors.New("no IP addresses available")

// AlreadyAllocatedError means that the owner already has addresses in the requested ranges.
type AlreadyAllocatedError struct {
	Owner Owner
	Addrs []netip.Addr
	// Legacy says that their files name only the container: they may be another interface's.
	Legacy bool
}

func (e *AlreadyAllocatedError) Error() string {
	return fmt.Sprintf("%s has been allocated to %s, duplicate allocation is not allowed: run DEL for the attachment first", join(e.Addrs), e.Owner)
}

func join[T fmt.Stringer](list []T) string {
	var texts []string
	for _, t := range list {
		texts = append(texts, t.String())
	}
	return strings.Join(texts, ", ")
}

// Allocate allocates one address from each range set to an owner: a requested address in the set, or the one that was
// free the longest. It allocates all or none.
func (s *Store) Allocate(o Owner, sets []RangeSet, requested []netip.Addr) (ips []IP, err error) {
	err = s.withRebuild(func() error { ips, err = s.allocate(o, sets, requested); return err })
	return ips, err
}

func (s *Store) allocate(o Owner, sets []RangeSet, requested []netip.Addr) ([]IP, error) {
	if s.storeErr != nil {
		return nil, s.storeErr
	}
	exact, legacy, err := s.lookup(o)
	if err != nil {
		return nil, err
	}
	exact, legacy = within(sets, exact), within(sets, legacy)
	if held := addrsOf(append(exact, legacy...)); len(held) > 0 {
		return nil, &AlreadyAllocatedError{o, held, len(exact) == 0}
	}
	wanted, err := assign(sets, requested)
	if err != nil {
		return nil, err
	}
	var ips []IP
	for i, set := range sets {
		ip, err := s.allocateIn(o, i, set, wanted[i])
		if err != nil {
			err = errors.Join(fmt.Errorf("range set %d: %w", i, err), s.undo(o, ips))
			s.endChange()
			return nil, err
		}
		ips = append(ips, ip)
	}
	s.endChange()
	return ips, nil
}

// within returns the records with an address in one of the sets. Another call for the same attachment, or an earlier
// configuration, may have allocated the others.
func within(sets []RangeSet, records []record) []record {
	return slices.DeleteFunc(records, func(r record) bool {
		return !slices.ContainsFunc(sets, func(set RangeSet) bool { _, in := set.Find(r.addr); return in })
	})
}

// assign gives each set the first requested address in it.
func assign(sets []RangeSet, requested []netip.Addr) ([]netip.Addr, error) {
	wanted := make([]netip.Addr, len(sets))
next:
	for _, a := range requested {
		a = a.Unmap()
		for i, set := range sets {
			r, ok := set.Find(a)
			if ok && a == r.Gateway {
				return nil, fmt.Errorf("requested IP %s is the gateway of the subnet %s: request another address", a, r.Subnet)
			}
			if ok && (!wanted[i].IsValid() || wanted[i] == a) {
				wanted[i] = a
				continue next
			}
			if ok {
				return nil, fmt.Errorf("requested IPs %s and %s are both in range set %d (%s): an attachment gets one address from each range set", wanted[i], a, i, set)
			}
		}
		return nil, fmt.Errorf("requested IP %s is in no range set: want an address in %s", a, join(sets))
	}
	return wanted, nil
}

func (s *Store) allocateIn(o Owner, set int, ranges RangeSet, wanted netip.Addr) (IP, error) {
	if wanted.IsValid() {
		r, _ := ranges.Find(wanted)
		return IP{netip.PrefixFrom(wanted, r.Subnet.Bits()), r.Gateway}, s.takeWanted(o, set, wanted)
	}
	for {
		addr, r, err := s.nextFree(set, ranges)
		if err != nil {
			return IP{}, err
		}
		if taken, err := s.take(o, set, addr); err != nil || taken {
			return IP{netip.PrefixFrom(addr, r.Subnet.Bits()), r.Gateway}, err
		}
	}
}

// takeWanted allocates a requested address, or returns an error with its owner.
func (s *Store) takeWanted(o Owner, set int, a netip.Addr) error {
	block, _, _, err := s.index.block(number(a))
	if err != nil {
		return err
	}
	if block.allocated(byte(number(a).lo)) {
		return s.takenError(a)
	}
	taken, err := s.take(o, set, a)
	if err == nil && !taken {
		err = s.takenError(a)
	}
	return err
}

func (s *Store) takenError(a netip.Addr) error {
	owner, err := s.dir.owner(a)
	if err != nil || owner == (Owner{}) {
		return fmt.Errorf("requested IP %s is already taken: %s names no owner", a, s.dir.file(a))
	}
	return fmt.Errorf("requested IP %s is already taken by container %s", a, owner)
}

// take allocates an address if it is free. It writes the file under a temporary name and links it into place, so the
// file is complete or absent. Where that is impossible, it creates the file in place.
func (s *Store) take(o Owner, set int, a netip.Addr) (bool, error) {
	if err := s.growIfFull(); err != nil {
		return false, err
	}
	ino, err := s.writeTemporary(o)
	if err != nil {
		return false, fmt.Errorf("reserve %s: %w", a, err)
	}
	if err := s.beginChange(pendingAdd{ownerKey(o, a), a, ino, Uptime()}); err != nil {
		return false, err
	}
	err = retry(func() error { return syscall.Link(s.temporary(), s.dir.file(a)) })
	if cannotLink(err) {
		err = s.createInPlace(o, a)
	}
	if e := s.clearTemporary(); e != nil {
		s.invalid = true // otherwise an address that cannot be removed would be unknown
		if err == nil {
			e = errors.Join(e, s.remove(a))
		}
		return false, e
	}
	if errors.Is(err, syscall.EEXIST) {
		return false, s.noteTaken(a)
	}
	if err != nil {
		return false, fmt.Errorf("reserve %s: %w", a, err)
	}
	if err := s.noteAllocated(o, set, a); err != nil {
		s.invalid = true
		return false, errors.Join(fmt.Errorf("reserve %s: %w", a, err), s.remove(a))
	}
	return true, nil
}

func (s *Store) growIfFull() error {
	if !s.index.full() {
		return nil
	}
	if err := s.grow(); err != nil {
		return err
	}
	return s.storeErr
}

// writeTemporary writes the address file under its temporary name.
func (s *Store) writeTemporary(o Owner) (ino uint64, err error) {
	if ino, ok := s.reuse(o); ok {
		return ino, nil
	}
	f, err := openFile(s.temporary(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		// A file left by a killed process may be an address by now: never write into it.
		if err := s.clearTemporary(); err != nil {
			return 0, err
		}
		f, err = openFile(s.temporary(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if _, err := f.WriteString(o.text()); err != nil {
		return 0, errors.Join(err, s.clearTemporary())
	}
	var st syscall.Stat_t
	err = retry(func() error { return syscall.Fstat(int(f.Fd()), &st) })
	return st.Ino, err
}

// noteAllocated updates host-local's cursor and the index after an allocation.
func (s *Store) noteAllocated(o Owner, set int, a netip.Addr) error {
	ino, ctime, err := s.dir.stat(a)
	if err != nil {
		return err
	}
	err = s.index.add(record{ownerKey(o, a), a, ino, ctime, Uptime()})
	if err != nil {
		return err
	}
	if s.allRequested {
		return nil
	}
	for len(s.last) <= set {
		s.last = append(s.last, "")
	}
	s.last[set] = a.String()
	return s.dir.noteLast(set, a)
}

// noteTaken notes that an address was allocated although the index did not know it.
func (s *Store) noteTaken(a netip.Addr) error {
	s.invalid = true
	return s.index.setAllocated(number(a), true)
}

// undo frees what was allocated before a failure.
func (s *Store) undo(o Owner, ips []IP) error {
	var errs []error
	for _, ip := range ips {
		a := ip.Address.Addr()
		errs = append(errs, s.remove(a), s.drop(record{owner: ownerKey(o, a), addr: a}))
	}
	return errors.Join(errs...)
}
