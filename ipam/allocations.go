package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Allocation is an allocated address.
type Allocation struct {
	Addr  netip.Addr
	Owner Owner     // zero: unknown
	Since time.Time // time of allocation, by the wall clock
}

// Networks returns the networks with an address directory below dataDir.
func Networks(dataDir string) (names []string, err error) {
	entries, err := os.ReadDir(dataDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the networks with addresses: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Allocations lists a network's allocated addresses in order. It takes no lock and changes nothing.
func Allocations(dataDir, network string) ([]Allocation, error) {
	d := directory(filepath.Join(dataDir, network))
	addrs, err := d.addresses()
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("addresses of network %s: %w", network, err)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	var out []Allocation
	for _, a := range addrs {
		if h, err := d.allocation(a); err == nil {
			out = append(out, h)
		} else if !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return out, nil
}

// OwnerOf returns the owner of an address of a network, or os.ErrNotExist if the address is free. It reads one file.
func OwnerOf(dataDir, network string, a netip.Addr) (Owner, error) {
	held, err := directory(filepath.Join(dataDir, network)).allocation(a)
	return held.Owner, err
}

func (d directory) allocation(a netip.Addr) (Allocation, error) {
	fi, err := os.Lstat(d.file(a))
	if err != nil {
		return Allocation{}, err
	}
	owner, err := d.owner(a)
	return Allocation{a, owner, fi.ModTime()}, err
}

// FreeIf frees and returns the addresses for which dead, called with the lock held, returns true.
func (s *Store) FreeIf(dead func(Allocation) bool) (freed []Allocation, err error) {
	err = s.withRebuild(func() error {
		records, err := s.index.all()
		if err != nil {
			return err
		}
		var gone []record
		of := map[netip.Addr]Allocation{}
		for _, r := range records {
			h, err := s.dir.allocation(r.addr)
			if err == nil && s.unchanged(r) && dead(h) {
				gone = append(gone, r)
				of[r.addr] = h
			}
		}
		addrs, err := s.free(gone)
		for _, a := range addrs {
			freed = append(freed, of[a])
		}
		return err
	})
	return freed, err
}

// Size returns how many addresses a set can allocate, at most limit.
func (s RangeSet) Size(limit int) (n int) {
	for _, r := range s {
		for a := r.Start; n < limit && !r.End.Less(a); a = a.Next() {
			if a != r.Gateway {
				n++
			}
		}
	}
	return n
}
