package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/ipam"
)

// Several CNI networks may take addresses of one network of the cluster, and a GC
// is of one of them: for each owner a symbolic link says of which it is.

func (d Dir) users(network string) string { return filepath.Join(d.Root(), "owners", network) }

func (d Dir) userLink(network string, o ipam.Owner) string {
	return filepath.Join(d.users(network), o.ContainerID+":"+o.IfName)
}

// SetUser notes of which CNI network an owner is.
func (d Dir) SetUser(network string, o ipam.Owner, cniName string) error {
	path := d.userLink(network, o)
	err := os.Symlink(cniName, path)
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(d.users(network), 0o755); err == nil {
			err = os.Symlink(cniName, path)
		}
	}
	if errors.Is(err, os.ErrExist) {
		if err = os.Remove(path); err == nil {
			err = os.Symlink(cniName, path)
		}
	}
	if err != nil {
		return fmt.Errorf("note the network of container %s: %w", o, err)
	}
	return nil
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
	out := map[ipam.Owner]string{}
	for _, e := range entries {
		id, ifName, ok := strings.Cut(e.Name(), ":")
		name, err := os.Readlink(filepath.Join(d.users(network), e.Name()))
		if ok && err == nil {
			out[ipam.Owner{ContainerID: id, IfName: ifName}] = name
		}
	}
	return out, nil
}
