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

// Several CNI networks may use addresses of one cluster network, but a GC is for one CNI network. So each owner has a
// directory entry that identifies its CNI network: a hard link to the CNI network's file, which needs no inode. If the
// file system allows no more hard links, it is a symbolic link to the network's name.

// ofNetwork is the prefix of the CNI networks' files. No container ID begins with it.
const ofNetwork = "="

func (d Dir) users(network string) string { return filepath.Join(d.Root(), "owners", network) }

func (d Dir) userLink(network string, o ipam.Owner) string {
	return filepath.Join(d.users(network), o.ContainerID+":"+o.IfName)
}

// SetUser records an owner's CNI network.
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
		return fmt.Errorf("record the network of container %s: %w", o, err)
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

// HasUser reports whether an owner is recorded. An owner without a record holds nothing.
func (d Dir) HasUser(network string, o ipam.Owner) bool {
	_, err := os.Lstat(d.userLink(network, o))
	return !isAbsent(err)
}

// DropUser deletes an owner's record.
func (d Dir) DropUser(network string, o ipam.Owner) error {
	if err := os.Remove(d.userLink(network, o)); err != nil && !isAbsent(err) {
		return fmt.Errorf("delete the record of container %s's network: %w", o, err)
	}
	return nil
}

// isAbsent reports whether an error means that an owner has no record. The file system has none with a name that is too
// long for it.
func isAbsent(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENAMETOOLONG)
}

// Users returns the CNI network of each owner.
func (d Dir) Users(network string) (map[ipam.Owner]string, error) {
	entries, err := os.ReadDir(d.users(network))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list the owners of addresses of network %s: %w", network, err)
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
	_ = syscall.Lstat(filepath.Join(d.users(network), name), &st) // 0 if the file is gone, which matches no network
	return st.Ino
}
