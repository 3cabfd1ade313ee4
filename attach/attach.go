// Package attach keeps the record of an attachment: a small file that names it
// and what was built for it, one part a plugin of its list. It is a shortcut:
// everything it says can be found again by owner.
//
// Records live below a root of runtime state and are worth nothing after a
// reboot: one that another boot wrote counts as absent.
package attach

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/leanjson"
	"github.com/fairlead/fairlead/kernel"
)

// DefaultRoot is where runtime state lives; RootVariable in the environment
// names another one, so that several hosts fit on one machine.
const (
	DefaultRoot  = "/run/fairlead"
	RootVariable = "FAIRLEAD_RUN"
)

// Record is one attachment.
type Record struct {
	Boot        string    `json:"boot"`
	Network     string    `json:"network"`
	ContainerID string    `json:"containerID"`
	IfName      string    `json:"ifname"`
	Netns       string    `json:"netns"`
	NetnsID     string    `json:"netnsID"` // device and inode: tells a namespace from its successor
	Created     time.Time `json:"created"`
	Parts       []Part    `json:"parts"` // in the order of the list

	stored []byte // as last written
}

// Part is what one plugin of the list built.
type Part struct {
	Plugin  string         `json:"plugin"`
	IPAM    string         `json:"ipam,omitempty"` // the type it delegated to
	Done    bool           `json:"done"`           // false: ADD has not ended, or was cut off
	PID     int            `json:"pid,omitempty"`  // of that ADD
	Started string         `json:"started,omitempty"`
	Objects kernel.Objects `json:"objects"`
	Result  *cni.Result    `json:"result,omitempty"`
	Ports   []Port         `json:"ports,omitempty"`
}

// Port is a host port of an attachment.
type Port struct {
	HostIP        string `json:"hostIP,omitempty"`
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
}

// Owner is the attachment as objects are marked with it.
func (r *Record) Owner() kernel.Owner {
	return kernel.Owner{Network: r.Network, ContainerID: r.ContainerID, IfName: r.IfName}
}

// Last is the position of the newest part of a plugin, or -1.
func (r *Record) Last(plugin string) int {
	for i := len(r.Parts) - 1; i >= 0; i-- {
		if r.Parts[i].Plugin == plugin {
			return i
		}
	}
	return -1
}

// Adding tells whether a process is still at work on the part.
func (p Part) Adding() bool {
	return !p.Done && p.PID != 0 && startTime(p.PID) == p.Started
}

// Living tells whether the attachment's namespace is still the one it was made in.
func (r *Record) Living() bool { return r.NetnsID != "" && NetnsID(r.Netns) == r.NetnsID }

// NetnsID is the device and inode of what a path names, "" if nothing.
func NetnsID(path string) string {
	var st syscall.Stat_t
	if path == "" || syscall.Stat(path, &st) != nil {
		return ""
	}
	return strconv.FormatUint(st.Dev, 10) + ":" + strconv.FormatUint(st.Ino, 10)
}

// Mine tells whether this process is the one at work on the part.
func (p Part) Mine() bool { return !p.Done && p.PID == os.Getpid() }

// Self is this process, as Part notes it.
func Self() (pid int, started string) { return os.Getpid(), startTime(os.Getpid()) }

// startTime is the clock tick at which a process began, proc(5); "" if it is gone.
func startTime(pid int) string {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	// The command's name, in parentheses, may hold anything.
	f := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return ""
	}
	return f[19]
}

// Dir is the directory of records.
type Dir struct {
	path string
	boot string
}

// Open returns the records below a root; "" is the environment's, or the default.
func Open(root string) *Dir {
	if root == "" {
		root = os.Getenv(RootVariable)
	}
	if root == "" {
		root = DefaultRoot
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return &Dir{filepath.Join(root, "attach"), strings.TrimSpace(string(boot))}
}

// New begins a record.
func (d *Dir) New(network, container, ifname, netns string) *Record {
	return &Record{
		Boot: d.boot, Network: network, ContainerID: container, IfName: ifname,
		Netns: netns, NetnsID: NetnsID(netns), Created: time.Now().UTC(),
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
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &Record{}
	if err := json.Unmarshal(raw, r); err != nil || r.Boot != d.boot {
		_ = os.Remove(path) // worth nothing, and in the way of a new one
		return nil, fmt.Errorf("%s is not of this boot or not readable: %w", path, os.ErrNotExist)
	}
	return r, nil
}

// Create stores a new record as a whole. One that exists, because another ADD
// of the attachment was first, is os.ErrExist.
func (d *Dir) Create(r *Record) error { return d.store(r, os.Link) }

// Write stores a record as a whole in place of what there is.
func (d *Dir) Write(r *Record) error { return d.store(r, os.Rename) }

// store writes under the attachment's one temporary name, which a kill may
// leave and Remove takes along, and puts it in place.
func (d *Dir) store(r *Record, place func(from, to string) error) error {
	raw, err := leanjson.Append(nil, r)
	if err != nil {
		return err
	}
	path := d.file(r.Owner())
	tmp := path + "~"
	err = os.WriteFile(tmp, raw, 0o600)
	for try := 0; errors.Is(err, os.ErrNotExist) && try < 8; try++ { // another's last record took the directory along
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = os.WriteFile(tmp, raw, 0o600)
		}
	}
	if err == nil {
		err = place(tmp, path)
		_ = os.Remove(tmp)
	}
	if err != nil {
		return fmt.Errorf("write the record of the attachment: %w", err)
	}
	r.stored = raw
	return nil
}

// The same number of bytes, so that the one can be written over the other.
const (
	notDone = `"done":false`
	done    = `"done":true `
)

// Finish notes in the record as it was last written that its newest part is done.
func (d *Dir) Finish(r *Record) error {
	at := bytes.LastIndex(r.stored, []byte(notDone))
	if at < 0 {
		return errors.New("finish the record of the attachment: it was not written")
	}
	f, err := os.OpenFile(d.file(r.Owner()), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte(done), int64(at))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("finish the record of the attachment: %w", err)
	}
	return nil
}

// Remove deletes a record, and its network's directory when it was the last.
func (d *Dir) Remove(o kernel.Owner) error {
	_ = os.Remove(d.file(o) + "~")
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
	if o, ok := kernel.ParseMark(mark); ok {
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
