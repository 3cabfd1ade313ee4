package attach

import (
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

// Seize takes an attachment that a collector listed, with its place, so that
// neither an ADD nor a DEL nor a repair begins until Strike or Free. It is
// os.ErrNotExist if it is not what was listed any more, or if one of them is at
// work: then it is theirs.
func (d *Dir) Seize(listed *Record) (*Record, *Reservation, error) {
	o := listed.Owner()
	place, err := d.Reserve(o)
	if errors.Is(err, os.ErrExist) {
		return nil, nil, os.ErrNotExist
	}
	if err != nil {
		return nil, nil, err
	}
	r, err := d.seize(d.file(o))
	if err == nil && !r.Created.Equal(listed.Created) {
		r.Unlock()
		err = os.ErrNotExist
	}
	if err != nil {
		place.Free()
		return nil, nil, err
	}
	return r, place, nil
}

func (d *Dir) seize(path string) (*Record, error) {
	fd, err := plainfile.Open(path, syscall.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	if syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) != nil || !same(fd, path) {
		_ = syscall.Close(fd)
		return nil, os.ErrNotExist
	}
	raw, err := plainfile.ReadAll(fd, path)
	var r *Record
	if err == nil {
		r, err = d.parse(path, raw, false)
	}
	if err != nil {
		_ = syscall.Close(fd)
		return nil, err
	}
	r.held, r.fd = true, fd
	return r, nil
}

// Strike stores what is left of a seized record, or deletes it with its last
// part, and lets go of it. A DEL of one that was cut off does not wait, and may
// have taken it all away.
func (d *Dir) Strike(r *Record, place *Reservation) (err error) {
	defer r.Unlock()
	if len(r.Parts) > 0 {
		err = d.replace(r, place)
	} else {
		err = os.Remove(d.file(r.Owner()))
		place.Free()
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// placeTime is how long another's place is waited for: of an ADD that finds out
// that the attachment stands, or of a collector.
const (
	placeTime = 10 * time.Second
	placePoll = 2 * time.Millisecond
)

// AwaitPlace is Reserve, and waits a while for whoever has the place, whom the
// error then names.
func (d *Dir) AwaitPlace(o kernel.Owner) (*Reservation, error) {
	place, err := d.Reserve(o)
	for end := time.Now().Add(placeTime); errors.Is(err, os.ErrExist) && time.Now().Before(end); {
		time.Sleep(placePoll)
		place, err = d.Reserve(o)
	}
	if errors.Is(err, os.ErrExist) {
		err = fmt.Errorf("%w (the lock %s~ is held by %s)", err, d.file(o), filelock.Holder(d.file(o)+"~"))
	}
	return place, err
}

// Beginning are the attachments of a network whose ADDs are at work and have no
// record yet. One whose names are too long for a file's is not found.
func (d *Dir) Beginning(network string) ([]cni.Attachment, error) {
	files, err := filepath.Glob(filepath.Join(d.network(network), "*.json~"))
	if err != nil {
		return nil, fmt.Errorf("look for ADDs at work: %w", err)
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
