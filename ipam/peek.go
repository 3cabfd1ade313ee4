package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/internal/bootid"
)

// Peek returns what Allocate would allocate now, or the addresses that the owner already has. It changes nothing: it
// creates no directory, takes no lock and leaves the index alone. Somebody else may get the addresses first.
func Peek(dataDir, network string, o Owner, sets []RangeSet, requested []netip.Addr) ([]IP, error) {
	boot, err := bootid.Read()
	if err != nil {
		return nil, err
	}
	s := &Store{
		dir:  directory(filepath.Join(dataDir, network)),
		temp: filepath.Join(dataDir, ".fairlead", network),
		boot: textKey(boot),
	}
	held, err := s.scan(o)
	if err != nil {
		return nil, fmt.Errorf("read the addresses of network %s: %w", network, err)
	}
	wanted, err := assign(sets, requested)
	if err != nil {
		return nil, err
	}
	var ips []IP
	for i, set := range sets {
		ip, err := s.peekIn(i, set, wanted[i], held)
		if err != nil {
			return nil, fmt.Errorf("range set %d: %w", i, err)
		}
		ips = append(ips, ip)
	}
	return ips, nil
}

// scan builds an index in memory only, and returns the owner's addresses.
func (s *Store) scan(o Owner) (mine []netip.Addr, err error) {
	addrs, err := s.dir.addresses()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	dead, err := s.staleAddresses()
	if err != nil {
		return nil, err
	}
	var records []record
	for _, a := range addrs {
		owner, err := s.dir.owner(a)
		if dead[a] || errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if owner == o {
			mine = append(mine, a)
		}
		records = append(records, record{owner: ownerKey(owner, a), addr: a})
	}
	if s.last, err = s.dir.lastReserved(); err != nil {
		return nil, err
	}
	s.index, err = buildIndex(header{boot: s.boot}, records)
	return mine, err
}

// staleAddresses returns the addresses that the next Open would free; see reclaim.
func (s *Store) staleAddresses() (map[netip.Addr]bool, error) {
	dead := map[netip.Addr]bool{}
	x, err := openIndex(s.temp + "/index")
	if isAbsent(err) {
		return dead, nil
	}
	if err != nil {
		return nil, err
	}
	defer x.close()
	if x.header.boot == s.boot {
		return dead, nil
	}
	records, err := x.all()
	if err != nil && !errors.Is(err, errInvalidIndex) {
		return nil, err
	}
	for _, r := range records {
		ino, ctime, err := s.dir.stat(r.addr)
		dead[r.addr] = err == nil && r.reserved != 0 && ino == r.ino && ctime == r.ctime
	}
	return dead, nil
}

func (s *Store) peekIn(set int, ranges RangeSet, wanted netip.Addr, held []netip.Addr) (IP, error) {
	for _, a := range held {
		if r, ok := ranges.Find(a); ok {
			return IP{netip.PrefixFrom(a, r.Subnet.Bits()), r.Gateway}, nil
		}
	}
	if !wanted.IsValid() {
		a, r, err := s.nextFree(set, ranges)
		return IP{netip.PrefixFrom(a, r.Subnet.Bits()), r.Gateway}, err
	}
	block, _, _, err := s.index.block(number(wanted))
	if err == nil && block.allocated(byte(number(wanted).lo)) {
		err = s.takenError(wanted)
	}
	r, _ := ranges.Find(wanted)
	return IP{netip.PrefixFrom(wanted, r.Subnet.Bits()), r.Gateway}, err
}
