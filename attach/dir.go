package attach

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/leanjson"
	"github.com/fairlead/fairlead/internal/plainfile"
	"github.com/fairlead/fairlead/kernel"
)

// Dir is the directory of records.
type Dir struct {
	path string
	boot string
	err  error // why the boot is not known
}

// Open returns the records below a root; "" is the environment's, or the default.
func Open(root string) *Dir {
	if root == "" {
		root = os.Getenv(RootVariable)
	}
	if root == "" {
		root = DefaultRoot
	}
	boot, err := plainfile.Read("/proc/sys/kernel/random/boot_id")
	if err == nil && len(boot) == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		err = fmt.Errorf("read the boot ID, without which no record can be trusted: %w", err)
	}
	return &Dir{filepath.Join(root, "attach"), strings.TrimSpace(string(boot)), err}
}

// Err says why the records are of no use: it is not known which boot this is.
func (d *Dir) Err() error { return d.err }

// New begins a record.
func (d *Dir) New(network, container, ifname, netns string) *Record {
	return &Record{
		Boot: d.boot, Network: network, ContainerID: container, IfName: ifname,
		Netns: netns, NetnsID: NetnsID(netns), Created: time.Now().UTC(), Since: kernel.Uptime(),
	}
}

// file is the path of a record: names hold no comma, and what is too long for
// a file name becomes a hash.
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

// Read returns a record; none, or a torn one, or one of another boot, is os.ErrNotExist.
func (d *Dir) Read(o kernel.Owner) (*Record, error) { return d.read(d.file(o)) }

func (d *Dir) read(path string) (*Record, error) {
	if d.err != nil {
		return nil, d.err
	}
	raw, adding, err := readLocked(path)
	if err != nil {
		return nil, err
	}
	return d.parse(path, raw, adding)
}

// parse reads a record whose file somebody has locked, or nobody.
func (d *Dir) parse(path string, raw []byte, adding bool) (*Record, error) {
	r := &Record{}
	if err := cni.Decode(raw, r); err != nil || r.Boot != d.boot {
		_ = os.Remove(path) // worth nothing, and in the way of a new one
		return nil, fmt.Errorf("%s is not of this boot or not readable: %w", path, os.ErrNotExist)
	}
	for i := range r.Parts {
		r.Parts[i].adding = adding && !r.Parts[i].Done
	}
	return r, nil
}

// Create stores a new record as a whole in the place that was reserved for it,
// locked until Unlock. One that exists, because another ADD of the attachment was
// first, is os.ErrExist; a place that a DEL took away meanwhile is os.ErrNotExist.
func (d *Dir) Create(r *Record, place *Reservation) error {
	return d.store(r, place, func(tmp, path string) error {
		err := os.Link(tmp, path)
		if err == nil {
			_ = syscall.Unlink(tmp)
		}
		return err
	})
}

// Write stores a record as a whole in place of what there is, locked until Unlock.
func (d *Dir) Write(r *Record) error {
	place, err := d.AwaitPlace(r.Owner())
	if err != nil {
		return fmt.Errorf("write the record of the attachment: %w", err)
	}
	return d.replace(r, place)
}

func (d *Dir) replace(r *Record, place *Reservation) error {
	return d.store(r, place, func(tmp, path string) error { // os.Rename would look first whether path is a directory
		if err := syscall.Rename(tmp, path); err != nil {
			return &os.LinkError{Op: "rename", Old: tmp, New: path, Err: err}
		}
		return nil
	})
}

func (d *Dir) store(r *Record, place *Reservation, put func(from, to string) error) error {
	raw, err := leanjson.Append(nil, r)
	if err == nil {
		err = plainfile.WriteAt(place.fd, raw, 0, place.path)
	}
	if err == nil {
		err = put(place.path, d.file(r.Owner()))
	}
	if err != nil {
		place.Free()
		return fmt.Errorf("write the record of the attachment: %w", err)
	}
	r.Unlock()
	place.used = true
	r.stored, r.held, r.fd = raw, true, place.fd
	return nil
}

// Finish notes in the record as it was last written that its parts from a
// position on are done, and unlocks it.
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

// Remove deletes a record and any reservation, and the network's directory when
// they were the last in it.
func (d *Dir) Remove(o kernel.Owner) error {
	_ = os.Remove(d.file(o) + "~")
	return d.Drop(o)
}

// Drop deletes a record, and leaves the place of an ADD that is at work.
func (d *Dir) Drop(o kernel.Owner) error {
	err := os.Remove(d.file(o))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = os.Remove(d.network(o.Network)) // fails while others are in it
	return nil
}

// List returns the records of a network, or of all when network is "".
func (d *Dir) List(network string) ([]*Record, error) {
	pattern := filepath.Join(d.path, "*")
	if network != "" {
		pattern = d.network(network)
	}
	// Glob takes a directory that may not be read for an empty one.
	if _, err := os.ReadDir(d.path); errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("list attachments: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(pattern, "*.json"))
	if err != nil {
		return nil, err
	}
	var out []*Record
	for _, f := range files {
		r, err := d.read(f)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// Alive tells whether the attachment that a mark names still stands: it has a
// record, and its namespace is there or its ADD is at work.
func (d *Dir) Alive(mark string) bool {
	r := d.ByMark(mark)
	if r == nil {
		return false
	}
	for _, p := range r.Parts {
		if p.Adding() {
			return true
		}
	}
	return r.Living()
}

// ByMark is the record of the attachment that a mark names, or nil.
func (d *Dir) ByMark(mark string) *Record {
	if o, ok := kernel.ParseOwnerTag(mark); ok {
		r, err := d.Read(o)
		if err != nil {
			return nil
		}
		return r
	}
	all, _ := d.List("")
	for _, r := range all {
		if r.Owner().Owns(mark) {
			return r
		}
	}
	return nil
}

// OtherBoots are the files of records that another boot wrote. A list drops them.
func (d *Dir) OtherBoots() (files []string) {
	all, _ := filepath.Glob(filepath.Join(d.path, "*", "*.json"))
	for _, file := range all {
		var r struct {
			Boot string `json:"boot"`
		}
		raw, err := plainfile.Read(file)
		if err == nil && cni.Decode(raw, &r) == nil && r.Boot != "" && r.Boot != d.boot {
			files = append(files, file)
		}
	}
	return files
}
