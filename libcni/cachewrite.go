package libcni

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/wire"
)

// writeCache writes an attachment to the cache.
func (c *CNIConfig) writeCache(n network, conf []byte, rt *RuntimeConf, result *cni.Result) error {
	raw, err := wire.EncodeValue(result, result.CNIVersion)
	if err != nil {
		return err
	}
	data, err := json.Marshal(&cached{
		Kind:           CNICacheV1,
		ContainerID:    rt.ContainerID,
		Config:         conf,
		IfName:         rt.IfName,
		NetworkName:    n.name,
		NetNS:          rt.NetNS,
		CniArgs:        rt.Args,
		CapabilityArgs: rt.CapabilityArgs,
		Result:         raw,
	})
	if err != nil {
		return fmt.Errorf("encode cached attachment: %w", err)
	}
	return replaceFile(c.file(n, rt), data)
}

// replaceFile writes a file atomically.
func replaceFile(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	tmp := temporary(file)
	err := os.WriteFile(tmp, data, 0o600)
	if err == nil {
		err = os.Rename(tmp, file)
	}
	if err == nil {
		return nil
	}
	_ = os.Remove(tmp)
	// The directory is a mount or a link, and its parent another file system or read-only: the reference library writes in
	// place, too.
	if errors.Is(err, syscall.EXDEV) || errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission) {
		return os.WriteFile(file, data, 0o600)
	}
	return err
}

// temporary returns the name of a cache file during the write. It is always the same, so that DEL finds what a killed
// process left. It is in the parent directory, because every file next to the target is read as an attachment.
func temporary(file string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(filepath.Base(file))) // it cannot fail
	return filepath.Join(filepath.Dir(filepath.Dir(file)), fmt.Sprintf(".result-%016x", h.Sum64()))
}

// forget removes an attachment from the cache. It returns no error, because the next GC removes a remaining entry.
func (c *CNIConfig) forget(n network, rt *RuntimeConf) {
	file := c.file(n, rt)
	_ = os.Remove(temporary(file))
	if info, err := readCached(file); err == nil && !info.belongs(n, rt) {
		return
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.warn("cached attachment not removed", err)
	}
}

// Forget removes an attachment from the cache that cannot be detached, because its configuration is gone.
func (c *CNIConfig) Forget(a *NetworkAttachment) error {
	rt := &RuntimeConf{ContainerID: a.ContainerID, IfName: a.IfName}
	n := network{name: a.Network}
	info, err := readCached(c.file(n, rt))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.belongs(n, rt) {
		return nil
	}
	return os.Remove(c.file(n, rt))
}
