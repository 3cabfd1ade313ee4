package attach

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/internal/bootid"
	"github.com/fairlead/fairlead/internal/filelock"
	"github.com/fairlead/fairlead/internal/plainfile"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
)

// Dir is the directory of records.
type Dir struct {
	path string
	boot string
	err  error // why the boot ID is unknown
}

// Open returns the directory of records below a root. "" means the environment's root, or the default.
func Open(root string) *Dir {
	if root == "" {
		root = os.Getenv(RootVariable)
	}
	if root == "" {
		root = DefaultRoot
	}
	boot, err := bootid.Read()
	if err != nil {
		err = fmt.Errorf("read the boot ID, without which no record of an attachment is valid: %w", err)
	}
	return &Dir{filepath.Join(root, "attach"), boot, err}
}

// Err returns why records cannot be used: the boot ID is unknown.
func (d *Dir) Err() error { return d.err }

// New returns a record without parts for an attachment in the namespace at a path.
func (d *Dir) New(network, container, ifname, path string) *Record {
	return d.NewIn(network, container, ifname, path, netns.IDAt(path))
}

// NewIn is New for a caller that has the namespace open.
func (d *Dir) NewIn(network, container, ifname, path string, id netns.ID) *Record {
	return &Record{
		Boot: d.boot, Network: network, ContainerID: container, IfName: ifname,
		Netns: path, NetnsID: id.File, NetnsCookie: id.StoredCookie(), Created: time.Now().UTC(), Since: kernel.Uptime(),
	}
}

// file returns a record's path. Names contain no comma; a name that is too long for a file becomes a hash.
func (d *Dir) file(o kernel.Owner) string {
	name := o.ContainerID + "," + o.IfName
	if len(name) > 200 {
		name = "," + o.Hash()
	}
	return filepath.Join(d.network(o.Network), name+".json")
}

func (d *Dir) network(name string) string {
	if len(name) > 200 {
		name = "," + kernel.Owner{Network: name}.Hash()
	}
	return filepath.Join(d.path, name)
}

// Read returns a record. A missing or damaged record, or one of another boot, is os.ErrNotExist.
func (d *Dir) Read(o kernel.Owner) (*Record, error) { return d.read(d.file(o)) }

func (d *Dir) read(path string) (*Record, error) {
	if d.err != nil {
		return nil, d.err
	}
	raw, adding, err := readLocked(path)
	if err != nil {
		return nil, notRecord(path, err)
	}
	if r := d.parse(raw, adding); r != nil {
		return r, nil
	}
	return d.readAlone(path)
}

// readAlone reads a record that was not readable before. Another process may have been writing it, so readAlone reads it
// again under the lock.
func (d *Dir) readAlone(path string) (*Record, error) {
	fd, err := openRecord(path)
	if err != nil {
		return nil, err
	}
	defer filelock.CloseFD(fd)
	if err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("%s: %w", path, errBeingWritten)
	}
	raw, err := plainfile.ReadAll(fd, path)
	if err != nil {
		return nil, err
	}
	return d.parseLocked(fd, path, raw)
}

// parseLocked decodes a record whose lock this process holds. It removes a record of another boot. A damaged record stays
// until a DEL, a GC or the next ADD of the attachment, so that doctor can report it.
func (d *Dir) parseLocked(fd int, path string, raw []byte) (*Record, error) {
	if r := d.parse(raw, false); r != nil {
		return r, nil
	}
	if !d.isOfOtherBoot(raw) {
		return nil, fmt.Errorf("%s: %w", path, errDamaged)
	}
	if same(fd, path) {
		_ = os.Remove(path)
	}
	return nil, fmt.Errorf("%s is of another boot: %w", path, os.ErrNotExist)
}

// parse decodes a record. It returns nil if the record is damaged or of another boot. adding says whether an ADD holds
// its lock.
func (d *Dir) parse(raw []byte, adding bool) *Record {
	r := &Record{}
	if err := rawjson.Unmarshal(raw, r); err != nil || r.Boot != d.boot || !intact(raw) {
		return nil
	}
	for i := range r.Parts {
		r.Parts[i].adding = adding && !r.Parts[i].Done
	}
	return r
}

// Create stores a new record atomically in its reservation, locked until Unlock. If another ADD of the attachment was
// first, the error is os.ErrExist; if a DEL deleted the reservation, it is os.ErrNotExist, also if the path is the
// reservation of the next ADD by now.
func (d *Dir) Create(r *Record, reservation *Reservation) error {
	return d.store(r, reservation, func(tmp, path string) error {
		err := plainfile.Link(reservation.fd, tmp, path)
		if errors.Is(err, os.ErrExist) && d.dropDamaged(path) {
			err = plainfile.Link(reservation.fd, tmp, path)
		}
		if err != nil {
			return err
		}
		if reservation.IsCurrent() {
			_ = syscall.Unlink(tmp)
		}
		return nil
	})
}

// Write atomically replaces a record, and keeps it locked until Unlock. On a full disk it overwrites the record's file if
// that is large enough: a DEL makes room.
func (d *Dir) Write(r *Record) error {
	reservation, err := d.AwaitReservation(context.Background(), r.Owner()) // the change has happened already
	if err == nil {
		err = d.replace(r, reservation)
	} else {
		err = fmt.Errorf("write the record of the attachment: %w", err)
	}
	if errors.Is(err, syscall.ENOSPC) && d.overwrite(r) {
		return nil
	}
	return err
}

// overwrite replaces a record without a new file, and reports whether it could. If the new record is shorter, spaces fill
// the rest of the file, so that one write is enough.
func (d *Dir) overwrite(r *Record) bool {
	raw, err := encode(r)
	if err != nil {
		return false
	}
	fd, err := syscall.Open(d.file(r.Owner()), syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer syscall.Close(fd)
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil || st.Size < int64(len(raw)) {
		return false
	}
	raw = append(raw, bytes.Repeat([]byte(" "), int(st.Size)-len(raw))...)
	return plainfile.WriteAt(fd, raw, 0, d.file(r.Owner())) == nil
}

func (d *Dir) replace(r *Record, reservation *Reservation) error {
	return d.store(r, reservation, func(tmp, path string) error { // os.Rename would first check whether path is a directory
		if !reservation.IsCurrent() {
			return &os.LinkError{Op: "rename", Old: tmp, New: path, Err: os.ErrNotExist}
		}
		if err := syscall.Rename(tmp, path); err != nil {
			return &os.LinkError{Op: "rename", Old: tmp, New: path, Err: err}
		}
		return nil
	})
}

func (d *Dir) store(r *Record, reservation *Reservation, put func(from, to string) error) error {
	raw, err := encode(r)
	if err == nil {
		err = plainfile.WriteAt(reservation.fd, raw, 0, reservation.path)
	}
	if err == nil {
		err = put(reservation.path, d.file(r.Owner()))
	}
	if err != nil {
		reservation.Free()
		return fmt.Errorf("write the record of the attachment: %w", err)
	}
	r.Unlock()
	reservation.used = true
	r.stored, r.held, r.fd = raw, true, reservation.fd
	return nil
}

// Finish marks the record's parts from a position on as done, as last written, and unlocks it.
func (d *Dir) Finish(r *Record, first int) error {
	defer r.Unlock()
	if !r.held {
		return errors.New("finish the record of the attachment: it was not written")
	}
	at := 0
	for i := range r.Parts {
		if r.Parts[i].Done {
			continue
		}
		next := bytes.Index(r.stored[at:], []byte(notDone))
		if next < 0 {
			return errors.New("finish the record of the attachment: it was written with fewer parts")
		}
		at += next
		if i >= first {
			if err := plainfile.WriteAt(r.fd, []byte(done), int64(at), d.file(r.Owner())); err != nil {
				return fmt.Errorf("finish the record of the attachment: %w", err)
			}
		}
		at += len(done)
	}
	return nil
}

// Remove deletes a record and any reservation, and the network's directory if it is empty then.
func (d *Dir) Remove(o kernel.Owner) error {
	_ = os.Remove(d.file(o) + "~")
	return d.Drop(o)
}

// Collect is Remove for a collector: it keeps the reservation of an ADD in progress.
func (d *Dir) Collect(o kernel.Owner) error {
	return errors.Join(clearLock(d.file(o)+"~"), d.Drop(o))
}

// Drop deletes a record and keeps the reservation of an ADD in progress.
func (d *Dir) Drop(o kernel.Owner) error {
	err := os.Remove(d.file(o))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = os.Remove(d.network(o.Network)) // fails while the directory has other entries
	return nil
}

// List returns the records of a network, or all if network is "". If some cannot be read, it returns the others and an
// error.
func (d *Dir) List(network string) ([]*Record, error) {
	records, damaged, err := d.Scan(network)
	for _, x := range damaged {
		err = errors.Join(err, x.Err)
	}
	return records, err
}

// Scan returns the records of a network, and its damaged and unreadable ones, or all if network is "".
func (d *Dir) Scan(network string) (records []*Record, damaged []Damaged, err error) {
	// Glob treats an unreadable directory as empty.
	if _, err := os.ReadDir(d.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("list attachments: %w", err)
	}
	for _, file := range d.files(network) {
		if d.err != nil { // no record is valid, and none is damaged
			return nil, nil, d.err
		}
		r, err := d.read(file)
		o, _ := ownerOfFile(file)
		switch {
		case err == nil:
			records = append(records, r)
		case errors.Is(err, errDamaged):
			damaged = append(damaged, Damaged{file, o, nil})
		case !errors.Is(err, os.ErrNotExist):
			damaged = append(damaged, Damaged{file, o, err})
		}
	}
	return records, damaged, nil
}

// IsCurrent reports whether a listed record still exists: no DEL, and no later ADD, has removed or replaced it.
func (d *Dir) IsCurrent(listed *Record) bool {
	r, err := d.Read(listed.Owner())
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	return r.Created.Equal(listed.Created)
}

// Alive reports whether the attachment with an owner tag still exists: it has a record, and its namespace exists at any
// path, or its ADD is in progress. An attachment whose record is damaged or cannot be read may exist.
func (d *Dir) Alive(tag string) bool {
	r, err := d.byTag(tag)
	if err != nil {
		return !isAbsent(err)
	}
	return slices.ContainsFunc(r.Parts, func(p Part) bool { return p.Adding() }) || r.MayLive()
}

// MayLive reports whether the network namespace of an attachment exists at any path, or cannot be searched.
func (r *Record) MayLive() bool {
	if r.HasNetns() {
		return true
	}
	path, err := new(Namespaces).Elsewhere(r)
	return path != "" || err != nil
}

// isAbsent reports whether the error of reading a record means that there is none. A damaged one is there, and so is one that
// another process is writing.
func isAbsent(err error) bool {
	return errors.Is(err, os.ErrNotExist) && !errors.Is(err, errDamaged) && !errors.Is(err, errBeingWritten)
}

// IsNewer reports whether the attachment with an owner tag began after another one. An attachment whose record cannot be
// read may be newer.
func (d *Dir) IsNewer(tag string, than *Record) bool {
	r, err := d.byTag(tag)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	return r.Since >= than.Since
}

// HasTag reports whether the attachment with an owner tag has a record, or may have one that cannot be read.
func (d *Dir) HasTag(tag string) bool {
	_, err := d.byTag(tag)
	return !errors.Is(err, os.ErrNotExist)
}

// byTag returns the record of the attachment with an owner tag, or os.ErrNotExist.
func (d *Dir) byTag(tag string) (*Record, error) {
	if o, ok := kernel.ParseOwnerTag(tag); ok {
		return d.Read(o)
	}
	all, damaged, err := d.Scan("")
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if r.Owner().Owns(tag) {
			return r, nil
		}
	}
	for _, f := range damaged {
		switch {
		case f.Err != nil && (f.Owner.Owns(tag) || f.Owner.ContainerID == ""):
			return nil, f.Err
		case f.Owner.Owns(tag):
			return nil, errDamaged
		}
	}
	return nil, os.ErrNotExist
}
