package dhcpd

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/internal/bootid"
	"github.com/fairlead/fairlead/internal/filelock"
	"github.com/fairlead/fairlead/internal/plainfile"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
)

// errExist is the error if an object exists already.
var errExist = os.ErrExist // constant, never assigned

// saved is the stored form of a lease. It is useless after a reboot, because no namespace survives and servers remember
// their clients' addresses.
type saved struct {
	Boot        string        `json:"boot"`
	Network     string        `json:"network"`
	ContainerID string        `json:"containerID"`
	IfName      string        `json:"ifname"`
	Netns       string        `json:"netns"`
	NetnsID     string        `json:"netnsID"` // device and inode: see netns.ID
	NetnsCookie uint64        `json:"netnsCookie,omitempty"`
	Created     time.Duration `json:"created"` // since boot
	Args        string        `json:"args,omitempty"`
	Stdin       []byte        `json:"stdin"` // configuration from ADD

	V4      *v4      `json:"v4,omitempty"`
	V6      *v6      `json:"v6,omitempty"`
	Routers *routers `json:"routers,omitempty"`
}

func (s *saved) namespace() netns.ID { return netns.FromStored(s.NetnsID, s.NetnsCookie) }

func (s *saved) owner() kernel.Owner {
	return kernel.Owner{Network: s.Network, ContainerID: s.ContainerID, IfName: s.IfName}
}

// store is the directory of leases. Only one daemon uses it at a time.
type store struct {
	dir  string
	boot string
	lock *os.File
}

// openStore opens a directory and locks it for this daemon.
func openStore(dir string) (*store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of leases: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("another DHCP daemon uses the leases in %s: stop it, or start this one with another --socketpath: %w", dir, err)
	}
	boot, err := bootid.Read()
	return &store{dir, boot, lock}, err
}

func (s *store) close() { _ = filelock.Close(s.lock) }

// file returns the path of a lease. A hash replaces a name that is too long for a file.
func (s *store) file(o kernel.Owner) string {
	name := o.Network + "," + o.ContainerID + "," + o.IfName
	if len(name) > 200 {
		name = "," + o.Hash()
	}
	return filepath.Join(s.dir, name+".json")
}

// isLeaseName reports whether a file has a name that file returns. The name of an interface may have commas.
func isLeaseName(name string) bool {
	base, is := strings.CutSuffix(name, ".json")
	return is && (strings.Count(base, ",") >= 2 || strings.HasPrefix(base, ","))
}

// write stores a lease atomically.
func (s *store) write(o kernel.Owner, raw []byte) error {
	path := s.file(o)
	err := plainfile.Write(path+"~", raw, 0o600)
	if err == nil {
		err = os.Rename(path+"~", path)
	}
	if err != nil {
		_ = os.Remove(path + "~")
		return fmt.Errorf("store the lease: %w", err)
	}
	return nil
}

func (s *store) remove(o kernel.Owner) error {
	err := os.Remove(s.file(o))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// list reads every lease of this boot. It removes other files with the name of a lease, such as those of other boots, and
// ignores all others. unread has the errors of files that it could not read, and keeps.
func (s *store) list() (out []saved, unread []error, err error) {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range files {
		path := filepath.Join(s.dir, f.Name())
		name, unfinished := strings.CutSuffix(f.Name(), "~")
		if !isLeaseName(name) {
			continue
		}
		raw, err := plainfile.Read(path)
		if err != nil {
			unread = append(unread, err)
			continue
		}
		var v saved
		if unfinished || json.Unmarshal(raw, &v) != nil || v.Boot != s.boot || s.file(v.owner()) != path {
			_ = os.Remove(path)
			continue
		}
		out = append(out, v)
	}
	return out, unread, nil
}

// save stores the lease's current state. The disk may be slow, so nothing else waits for it.
func (l *lease) save() error {
	l.file.Lock()
	defer l.file.Unlock()
	raw, err := l.encode()
	if err != nil || raw == nil {
		return err
	}
	return l.d.store.write(l.saved.owner(), raw)
}

// removeFile removes the stored lease, which has ended.
func (l *lease) removeFile() error {
	l.file.Lock()
	defer l.file.Unlock()
	return l.d.store.remove(l.saved.owner())
}

// keepSaved stores the lease after changes, until it ends or the daemon stops.
func (l *lease) keepSaved() {
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.unsaved:
			l.saveLogged()
		}
	}
}

func (l *lease) saveLogged() {
	if err := l.save(); err != nil {
		l.d.log("%s: %v", l, err)
	}
}

// saveLater makes keepSaved store the lease.
func (l *lease) saveLater() {
	select {
	case l.unsaved <- struct{}{}:
	default:
	}
}

// saveLast stores a change that keepSaved has not stored.
func (l *lease) saveLast() {
	select {
	case <-l.unsaved:
		l.saveLogged()
	default:
	}
}

// encode returns the lease as it is stored, or nil if it has ended.
func (l *lease) encode() ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil, nil
	}
	v := l.saved
	for _, p := range l.protocols {
		switch p := p.(type) {
		case *v4:
			v.V4 = p
		case *v6:
			v.V6 = p
		case *routers:
			v.Routers = p
		}
	}
	return json.Marshal(&v)
}

// load restores a lease from its stored form.
func (d *Daemon) load(v saved) (*lease, error) {
	l, err := d.newLease(v)
	if err != nil {
		return nil, err
	}
	for _, p := range l.protocols {
		switch p := p.(type) {
		case *v4:
			if v.V4 == nil {
				return l, errors.New("the stored lease is incomplete")
			}
			p.ACK, p.Added, p.Server, p.Term = v.V4.ACK, v.V4.Added, v.V4.Server, v.V4.Term
			if p.Added == nil { // an earlier version stored it
				p.Added = p.ACK
			}
		case *v6:
			if v.V6 == nil {
				return l, errors.New("the stored lease is incomplete")
			}
			p.Reply, p.IP, p.Term = v.V6.Reply, v.V6.IP, v.V6.Term
			if p.reply() == nil {
				return l, errors.New("the stored lease is damaged")
			}
		case *routers:
			if v.Routers == nil {
				return l, errors.New("the stored lease is incomplete")
			}
			p.Items, p.Term, p.DNS = v.Routers.Items, v.Routers.Term, v.Routers.DNS
		}
	}
	return l, l.complete()
}
