package ipam

import (
	"net/netip"
	"time"
)

// GC frees and returns addresses without a valid owner. It keeps addresses that were allocated since the uptime began,
// when this collection started: their owners may be newer than the list of valid ones.
func (s *Store) GC(valid []Owner, began time.Duration) (freed []netip.Addr, err error) {
	err = s.withRebuild(func() error { freed, err = s.collect(valid, began); return err })
	return freed, err
}

func (s *Store) collect(valid []Owner, began time.Duration) ([]netip.Addr, error) {
	living := map[key]bool{}
	for _, o := range valid {
		living[ownerKey(o, netip.Addr{})] = true
		living[ownerKey(Owner{ContainerID: o.ContainerID}, netip.Addr{})] = true
	}
	records, err := s.index.all()
	if err != nil {
		return nil, err
	}
	// host-local's files have only wall-clock times. If the clock is set back during this collection, a new file looks
	// older; a time in the future is from before the clock was set back.
	now := time.Now()
	since := now.Add(began - Uptime()).UnixNano()
	var dead []record
	for _, r := range records {
		young := r.reserved >= began || r.reserved == 0 && r.ctime >= since && r.ctime <= now.UnixNano()
		if living[r.owner] || young {
			continue
		}
		if !s.unchanged(r) { // somebody wrote into it: read its owner again
			return nil, errInvalidIndex
		}
		dead = append(dead, r)
	}
	return s.free(dead)
}

// unchanged reports whether a record's file is unchanged.
func (s *Store) unchanged(r record) bool {
	ino, ctime, err := s.dir.stat(r.addr)
	return err == nil && ino == r.ino && ctime == r.ctime
}
