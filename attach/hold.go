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

// takeTime bounds how long a DEL waits for a repair of its attachment.
const takeTime = 10 * time.Second

// Take is Read for whoever changes what stands, a DEL or a repair: nobody else
// does until Unlock. One that another has taken is waited for, within the
// context's deadline; then it is an error, "try again later". A record of an ADD
// at work, or of one that was cut off, is not locked: a DEL may come at any moment
// of it.
func (d *Dir) Take(ctx context.Context, o kernel.Owner) (r *Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*takeTime) // of which filelock leaves a part for the work
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
		return nil, beingChanged(o, busy)
	}
	return r, err
}

// TryTake is Take without a wait.
func (d *Dir) TryTake(o kernel.Owner) (*Record, error) {
	r, err := d.take(d.file(o))
	if errors.Is(err, errTaken) {
		return nil, beingChanged(o, err)
	}
	return r, err
}

func beingChanged(o kernel.Owner, err error) error {
	return cni.Errorf(cni.CodeTryAgainLater, "a DEL or a repair of container %s in network %s as %s is at work: %w", o.ContainerID, o.Network, o.IfName, err)
}

var errTaken = errors.New("its record is locked") // a constant; nothing assigns it

func (d *Dir) take(path string) (*Record, error) {
	fd, err := plainfile.Open(path, syscall.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	locked := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) == nil
	raw, err := plainfile.ReadAll(fd, path)
	var r *Record
	if err == nil {
		r, err = d.parse(path, raw, !locked)
	}
	switch {
	case err != nil || !r.done():
	case !locked || !same(fd, path):
		r, err = nil, errTaken
	default:
		r.held, r.fd = true, fd
		return r, nil
	}
	_ = syscall.Close(fd)
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

// Hold keeps an attachment that stands as it is, until release: no DEL, and no
// further plugin of its list, changes it meanwhile. One that is being added or
// removed is an error, "try again later".
func (d *Dir) Hold(o kernel.Owner) (r *Record, release func(), err error) {
	place, err := d.Reserve(o)
	if errors.Is(err, os.ErrExist) {
		return nil, nil, cni.Errorf(cni.CodeTryAgainLater, "%w", err)
	}
	if err != nil {
		return nil, nil, err
	}
	r, err = d.TryTake(o)
	if err == nil && !r.held {
		err = cni.Errorf(cni.CodeTryAgainLater, "the ADD of container %s to network %s as %s is at work, or was cut off", o.ContainerID, o.Network, o.IfName)
	}
	if err != nil {
		place.Free()
		return nil, nil, fmt.Errorf("hold the attachment: %w", err)
	}
	return r, func() { r.Unlock(); place.Free() }, nil
}

// Reserved tells whether an ADD of an attachment is at work that has no record yet.
func (d *Dir) Reserved(o kernel.Owner) bool {
	fd, err := plainfile.Open(d.file(o)+"~", syscall.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer syscall.Close(fd)
	return syscall.Flock(fd, syscall.LOCK_SH|syscall.LOCK_NB) == syscall.EWOULDBLOCK
}

// CutOff are the attachments whose ADD was killed before it had a record: an
// address may be held for them, and nothing else. One whose name is a hash is left out.
func (d *Dir) CutOff() (out []kernel.Owner) {
	files, _ := filepath.Glob(filepath.Join(d.path, "*", "*.json~"))
	for _, path := range files {
		network := filepath.Base(filepath.Dir(path))
		id, ifName, ok := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".json~"), ",")
		o := kernel.Owner{Network: network, ContainerID: id, IfName: ifName}
		if !ok || id == "" || strings.HasPrefix(network, ",") || d.Reserved(o) {
			continue
		}
		if _, err := d.Read(o); errors.Is(err, os.ErrNotExist) {
			out = append(out, o)
		}
	}
	return out
}
