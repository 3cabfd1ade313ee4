package attach

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/internal/filelock"
	"github.com/fairlead/fairlead/internal/plainfile"
	"github.com/fairlead/fairlead/kernel"
)

// errDamaged is the error of a file that is not a record. It counts as absent, so that DEL searches the attachment's
// objects.
var errDamaged = fmt.Errorf("the record is damaged: %w", os.ErrNotExist) // a constant; nothing assigns it

// errBeingWritten is the error of a file that is not a record while another process has its lock: it writes the file, or also
// tries to read it.
var errBeingWritten = fmt.Errorf("the record is being written: %w", os.ErrNotExist) // a constant

// openRecord opens a record. It does not wait for the writer of a FIFO.
func openRecord(path string) (int, error) {
	fd, err := plainfile.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) && isLink(path) {
		return fd, fmt.Errorf("%s leads nowhere: %w", path, errDamaged)
	}
	return fd, notRecord(path, err)
}

func isLink(path string) bool {
	st, err := os.Lstat(path)
	return err == nil && st.Mode()&os.ModeSymlink != 0
}

// notRecord returns the error of opening or reading a record. A directory, another special file, a huge file, or
// a symbolic link to itself in its place is a damaged record.
func notRecord(path string, err error) error {
	for _, other := range []error{syscall.EISDIR, plainfile.ErrNotRegular, syscall.EFBIG, syscall.ENXIO, syscall.ELOOP} {
		if errors.Is(err, other) {
			return fmt.Errorf("%s: %w", path, errDamaged)
		}
	}
	return err
}

// isOfOtherBoot reports whether the content of a file is an intact record of another boot.
func (d *Dir) isOfOtherBoot(raw []byte) bool {
	var r struct {
		Boot string `json:"boot"`
	}
	return intact(raw) && rawjson.Unmarshal(raw, &r) == nil && r.Boot != "" && r.Boot != d.boot
}

// dropDamaged removes a damaged record or one of another boot, and reports whether none is left. The caller has the
// attachment's reservation, so others have the record's lock for a moment only.
func (d *Dir) dropDamaged(path string) bool {
	var err error
	_ = filelock.Until(context.Background(), path, func() (bool, error) {
		_, err = d.read(path)
		return !errors.Is(err, errBeingWritten), nil
	})
	if errors.Is(err, errDamaged) {
		return os.Remove(path) == nil
	}
	return isAbsent(err)
}

// Damaged is a file in the place of a record that is none, or that cannot be read.
type Damaged struct {
	File  string
	Owner kernel.Owner // the zero value if the file's name is a hash
	Err   error        // why it cannot be read: it may be a record; nil: it was read and is none
}

// OtherBoots returns the files of records from other boots. List deletes them.
func (d *Dir) OtherBoots() (files []string) {
	for _, file := range d.files("") {
		if raw, err := readRecord(file, nil); err == nil && d.isOfOtherBoot(raw) {
			files = append(files, file)
		}
	}
	return files
}

// files returns the files of the records of a network, or of all networks if network is "".
func (d *Dir) files(network string) []string {
	dir := filepath.Join(d.path, "*")
	if network != "" {
		dir = d.network(network)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.json")) // the pattern is valid
	return files
}

// ownerOfFile returns the owner of a record or reservation by the file's path. A name that became a hash tells no owner.
func ownerOfFile(path string) (kernel.Owner, bool) {
	network := filepath.Base(filepath.Dir(path))
	id, ifName, ok := strings.Cut(strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), "~"), ".json"), ",")
	if !ok || id == "" || strings.HasPrefix(network, ",") {
		return kernel.Owner{}, false
	}
	return kernel.Owner{Network: network, ContainerID: id, IfName: ifName}, true
}

// Usable returns why no record can be written, as far as the directory's path tells, or nil.
func (d *Dir) Usable() error {
	path := d.path
	for path != filepath.Dir(path) {
		if _, err := os.Lstat(path); err == nil {
			break // an ADD creates what does not exist below
		}
		path = filepath.Dir(path)
	}
	st, err := os.Stat(path)
	if err == nil && !st.IsDir() {
		err = &os.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	}
	if err == nil {
		if e := syscall.Access(path, accessWrite|accessSearch); e != nil {
			err = &os.PathError{Op: "write", Path: path, Err: e}
		}
	}
	return err
}

// Modes of access(2).
const (
	accessWrite  = 2
	accessSearch = 1
)
