package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/ipam"
)

// Several CNI networks may take addresses of one network of the cluster, and a GC
// is of one of them. So each owner has a name in a directory that says of which it
// is: a hard link to that CNI network's file there, which costs no inode, or a symbolic
// link to its name where the file system has no room for more of these.

// ofNetwork begins the names of CNI networks' files; no container's ID does.
const ofNetwork = "="

func (d Dir) users(network string) string { return filepath.Join(d.Root(), "owners", network) }

func (d Dir) userLink(network string, o ipam.Owner) string {
	return filepath.Join(d.users(network), o.ContainerID+":"+o.IfName)
}

// SetUser notes of which CNI network an owner is.
func (d Dir) SetUser(network string, o ipam.Owner, cniName string) error {
	path, file := d.userLink(network, o), filepath.Join(d.users(network), ofNetwork+cniName)
	err := os.Link(file, path)
	if errors.Is(err, os.ErrNotExist) {
		if err = makeFile(file); err == nil {
			err = os.Link(file, path)
		}
	}
	if errors.Is(err, os.ErrExist) {
		if err = os.Remove(path); err == nil {
			err = os.Link(file, path)
		}
	}
	if err != nil && os.Symlink(cniName, path) != nil {
		return fmt.Errorf("note the network of container %s: %w", o, err)
	}
	return nil
}

func makeFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// HasUser tells whether an owner is noted: one that is not holds nothing.
func (d Dir) HasUser(network string, o ipam.Owner) bool {
	_, err := os.Lstat(d.userLink(network, o))
	return !errors.Is(err, os.ErrNotExist)
}

// DropUser forgets it.
func (d Dir) DropUser(network string, o ipam.Owner) error {
	if err := os.Remove(d.userLink(network, o)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forget the network of container %s: %w", o, err)
	}
	return nil
}

// Users are the owners and their CNI networks.
func (d Dir) Users(network string) (map[ipam.Owner]string, error) {
	entries, err := os.ReadDir(d.users(network))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list whose the addresses of network %s are: %w", network, err)
	}
	names := map[uint64]string{}
	for _, e := range entries {
		if name, ok := strings.CutPrefix(e.Name(), ofNetwork); ok {
			names[d.inode(network, e.Name())] = name
		}
	}
	out := map[ipam.Owner]string{}
	for _, e := range entries {
		id, ifName, ok := strings.Cut(e.Name(), ":")
		if !ok {
			continue
		}
		name := names[d.inode(network, e.Name())]
		if to, err := os.Readlink(filepath.Join(d.users(network), e.Name())); err == nil {
			name = to
		}
		out[ipam.Owner{ContainerID: id, IfName: ifName}] = name
	}
	return out, nil
}

func (d Dir) inode(network, name string) uint64 {
	var st syscall.Stat_t
	_ = syscall.Lstat(filepath.Join(d.users(network), name), &st) // 0, of nobody, if it is gone
	return st.Ino
}
