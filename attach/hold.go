package attach

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/filelock"
	"github.com/fairlead/fairlead/internal/plainfile"
	"github.com/fairlead/fairlead/kernel"
)

// takeTime bounds how long a DEL waits for a repair of its attachment.
const takeTime = 10 * time.Second

// Take reads a record to change its objects, for a DEL or a repair: nobody else changes them until Unlock. It waits for
// another holder until the context's deadline; then the error is "try again later". A record of an ADD that is in
// progress or was interrupted is not locked: a DEL may come at any moment.
func (d *Dir) Take(ctx context.Context, o kernel.Owner) (r *Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*takeTime) // filelock leaves a part of it for the work
	defer cancel()
	err = filelock.Until(ctx, d.file(o), func() (bool, error) {
		var err error
		r, err = d.take(d.file(o))
		if errors.Is(err, errTaken) {
			return false, nil
		}
		return true, err
	})
	if busy, ok := errors.AsType[*filelock.Busy](err); ok {
		return nil, errInUse(o, busy)
	}
	return r, err
}

// TryTake is Take without waiting.
func (d *Dir) TryTake(o kernel.Owner) (*Record, error) {
	r, err := d.take(d.file(o))
	if errors.Is(err, errTaken) {
		return nil, errInUse(o, err)
	}
	return r, err
}

func errInUse(o kernel.Owner, err error) error {
	return cni.Errorf(cni.CodeTryAgainLater, "a DEL or a repair of container %s in network %s as %s is in progress: %w", o.ContainerID, o.Network, o.IfName, err)
}

var errTaken = errors.New("its record is locked") // a constant; nothing assigns it

func (d *Dir) take(path string) (*Record, error) {
	fd, err := openRecord(path)
	if err != nil {
		return nil, err
	}
	locked := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) == nil
	raw, err := plainfile.ReadAll(fd, path)
	var r *Record
	switch {
	case err != nil:
		err = notRecord(path, err)
	case locked:
		r, err = d.parseLocked(fd, path, raw)
	default:
		if r = d.parse(raw, true); r == nil {
			err = errTaken // it is being written
		}
	}
	switch {
	case err != nil || !locked && !r.done():
	case !locked || !same(fd, path):
		r, err = nil, errTaken
	case !r.done():
	default:
		r.held, r.fd = true, fd
		return r, nil
	}
	_ = filelock.CloseFD(fd)
	return r, err
}

func (r *Record) done() bool {
	for _, p := range r.Parts {
		if !p.Done {
			return false
		}
	}
	return true
}

// IsHeld reports whether this process has the record locked. Take does not lock the record of an interrupted ADD.
func (r *Record) IsHeld() bool { return r.held }

// Hold keeps an existing attachment unchanged until release: no DEL and no other plugin of its list changes it. If it
// is being added or removed, the error is "try again later".
func (d *Dir) Hold(o kernel.Owner) (r *Record, release func(), err error) {
	reservation, err := d.Reserve(o)
	if errors.Is(err, os.ErrExist) {
		return nil, nil, cni.Errorf(cni.CodeTryAgainLater, "%w", err)
	}
	if err != nil {
		return nil, nil, err
	}
	r, err = d.TryTake(o)
	if err == nil && !r.held {
		err = cni.Errorf(cni.CodeTryAgainLater, "the ADD of container %s to network %s as %s is in progress, or was interrupted", o.ContainerID, o.Network, o.IfName)
	}
	if err != nil {
		reservation.Free()
		return nil, nil, fmt.Errorf("lock the attachment: %w", err)
	}
	return r, func() { r.Unlock(); reservation.Free() }, nil
}

// Reserved reports whether an ADD of an attachment is in progress and has no record yet.
func (d *Dir) Reserved(o kernel.Owner) bool {
	fd, err := plainfile.Open(d.file(o)+"~", syscall.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer filelock.CloseFD(fd)
	return syscall.Flock(fd, syscall.LOCK_SH|syscall.LOCK_NB) == syscall.EWOULDBLOCK
}

// Interrupted returns the attachments whose ADD was killed before it had a record. At most, an address is allocated to
// them. It skips names that became a hash.
func (d *Dir) Interrupted() (out []kernel.Owner) {
	files, _ := filepath.Glob(filepath.Join(d.path, "*", "*.json~"))
	for _, path := range files {
		o, ok := ownerOfFile(path)
		if !ok || d.Reserved(o) {
			continue
		}
		if _, err := d.Read(o); errors.Is(err, os.ErrNotExist) {
			out = append(out, o)
		}
	}
	return out
}
