package attach

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/filelock"
	"github.com/fairlead/fairlead/internal/plainfile"
	"github.com/fairlead/fairlead/kernel"
)

// TakeForGC takes a listed attachment for a GC, with its reservation: no ADD or repair begins until ReplaceParts or Free,
// and no DEL but that of an interrupted ADD, after which HoldsForGC is false. If the record has changed, or one of them is
// in progress, the error is os.ErrNotExist, and the attachment is left to them.
func (d *Dir) TakeForGC(listed *Record) (*Record, *Reservation, error) {
	o := listed.Owner()
	reservation, err := d.Reserve(o)
	if errors.Is(err, os.ErrExist) {
		return nil, nil, os.ErrNotExist
	}
	if err != nil {
		return nil, nil, err
	}
	r, err := d.takeForGC(d.file(o))
	if err == nil && !r.Created.Equal(listed.Created) {
		r.Unlock()
		err = os.ErrNotExist
	}
	if err != nil {
		reservation.Free()
		return nil, nil, err
	}
	return r, reservation, nil
}

func (d *Dir) takeForGC(path string) (*Record, error) {
	fd, err := openRecord(path)
	if err != nil {
		return nil, err
	}
	if syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) != nil || !same(fd, path) {
		_ = filelock.CloseFD(fd)
		return nil, os.ErrNotExist
	}
	raw, err := plainfile.ReadAll(fd, path)
	var r *Record
	if err == nil {
		r, err = d.parseLocked(fd, path, raw)
	}
	if err != nil {
		_ = filelock.CloseFD(fd)
		return nil, err
	}
	r.held, r.fd = true, fd
	return r, nil
}

// HoldsForGC reports whether a record and a reservation that TakeForGC returned are still the attachment's. A DEL of an
// interrupted ADD does not wait: it deletes both, and the next ADD has others.
func (d *Dir) HoldsForGC(r *Record, reservation *Reservation) bool {
	return d.Holds(r) && reservation.IsCurrent()
}

// ReplaceParts stores the remaining parts of a record that TakeForGC returned, and releases it. If no part is left, it
// deletes the record. On a full disk it overwrites the record's file. It changes nothing if HoldsForGC is false.
func (d *Dir) ReplaceParts(r *Record, reservation *Reservation) (err error) {
	defer r.Unlock()
	defer reservation.Free()
	switch {
	case !d.HoldsForGC(r, reservation):
		return nil
	case len(r.Parts) > 0:
		err = d.replace(r, reservation)
	default:
		err = os.Remove(d.file(r.Owner()))
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOSPC) && d.overwrite(r) {
		return nil
	}
	return err
}

// reservationWait limits the wait for another process's reservation: of an ADD that finds the attachment existing, or
// of a collector.
const (
	reservationWait = 10 * time.Second
	reservationPoll = 2 * time.Millisecond
)

// AwaitReservation is Reserve that waits for another holder, until the context ends. If it waits too long, the error names
// the holder.
func (d *Dir) AwaitReservation(ctx context.Context, o kernel.Owner) (*Reservation, error) {
	reservation, err := d.Reserve(o)
	for end := time.Now().Add(reservationWait); errors.Is(err, os.ErrExist) && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(reservationPoll)
		reservation, err = d.Reserve(o)
	}
	if errors.Is(err, os.ErrExist) {
		err = fmt.Errorf("%w (%s)", err, filelock.Describe(d.file(o)+"~"))
	}
	return reservation, err
}

// InProgress returns the attachments of a network whose ADDs are in progress and have no record yet. It skips names
// that became a hash.
func (d *Dir) InProgress(network string) ([]cni.Attachment, error) {
	files, err := filepath.Glob(filepath.Join(d.network(network), "*.json~"))
	if err != nil {
		return nil, fmt.Errorf("list ADDs in progress: %w", err)
	}
	var list []cni.Attachment
	for _, path := range files {
		container, ifname, ok := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".json~"), ",")
		if ok && container != "" && d.Reserved(kernel.Owner{Network: network, ContainerID: container, IfName: ifname}) {
			list = append(list, cni.Attachment{ContainerID: container, IfName: ifname})
		}
	}
	return list, nil
}
