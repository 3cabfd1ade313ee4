package libcni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/wire"
)

// remember writes an attachment into the cache.
func (c *CNIConfig) remember(n network, conf []byte, rt *RuntimeConf, result *cni.Result) error {
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

// replaceFile writes a file whole or not at all. The temporary file stands in
// the directory above: every file beside the target would be read as an
// attachment.
func replaceFile(file string, data []byte) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(dir), ".result-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // gone after the rename
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}

// forget takes an attachment out of the cache. What stays there is tidied up
// by the next GC, so that it is no reason to fail.
func (c *CNIConfig) forget(n network, rt *RuntimeConf) {
	file := c.file(n, rt)
	if info, err := readCached(file); err == nil && !info.belongs(n, rt) {
		return
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.warn("cached attachment not removed", err)
	}
}

// Forget takes an attachment out of the cache that could not be detached by its
// configuration, as none is left.
func (c *CNIConfig) Forget(a *NetworkAttachment) error {
	rt := &RuntimeConf{ContainerID: a.ContainerID, IfName: a.IfName}
	n := network{name: a.Network}
	info, err := readCached(c.file(n, rt))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.belongs(n, rt) {
		return nil
	}
	return os.Remove(c.file(n, rt))
}
