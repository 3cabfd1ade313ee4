package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/plugins/delegate"
)

// writeCNIConfig writes the network configuration that runtimes wait for. The file stays when the agent stops:
// containers can be created without the agent.
func writeCNIConfig(all *config.Config) error {
	c := all.CNI
	if c.File == "" {
		return nil
	}
	list, err := []byte(c.List), error(nil)
	if all.Policy.Enabled {
		if list, err = delegate.WithPolicy(list); err != nil {
			return fmt.Errorf("cni.list: %w", err)
		}
	}
	switch {
	case all.PodNetworks.Enabled:
		list, err = delegate.FusePod(list)
	case c.Fuse:
		list, err = delegate.FuseChain(list)
	}
	if err != nil {
		return fmt.Errorf("cni.list: %w", err)
	}
	var want bytes.Buffer
	if err := json.Indent(&want, list, "", "  "); err != nil {
		return fmt.Errorf("cni.list: %w", err)
	}
	want.WriteByte('\n')
	if have, err := os.ReadFile(c.File); err == nil && bytes.Equal(have, want.Bytes()) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(c.File), 0o755); err != nil {
		return fmt.Errorf("cni.file: %w", err)
	}
	if err := local.Replace(c.File, want.Bytes(), 0o644); err != nil {
		return fmt.Errorf("cni.file: %w", err)
	}
	return nil
}
