package agent

import (
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/backend/wgd"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/desired"
)

// publishedKeys returns the WireGuard keys that the store has of this node, or "".
func (a *Agent) publishedKeys(self *cluster.Node) (public, previous string) {
	a.storeCache.read(func(s *cluster.Snapshot) {
		if n := s.Nodes[self.Name]; n != nil && n.ID == self.ID {
			public, previous = n.WireGuard, n.Previous
		}
	})
	return public, previous
}

// keys sets the node's WireGuard keys if a network uses WireGuard. It returns when to check the key's rotation. Without
// a valid key the node keeps its published ones: its link works until the host restarts.
func (a *Agent) keys(self *cluster.Node, h *desired.Host) (again time.Duration) {
	var conf *cluster.Backend
	a.storeCache.read(func(s *cluster.Snapshot) {
		for _, n := range desired.SharedNetworks(s) {
			for _, b := range n.Backends {
				if b.Type == cluster.WireGuard {
					conf = &b
				}
			}
		}
	})
	if conf == nil {
		a.status.setKeyError(nil)
		return 0
	}
	h.KeyFile = filepath.Join(a.o.Lib, "fairlead", "wireguard.key")
	h.Socket = filepath.Join(a.o.Run, "wireguard.sock")
	h.Program = append(slices.Clone(a.o.Program), wgd.Command)
	var err error
	published, before := a.publishedKeys(self)
	files := backend.Keys{File: h.KeyFile, Published: func(public string) bool { return public == published }}
	self.WireGuard, self.Previous, err = files.Rotate(time.Now(), time.Duration(conf.Rotate)*time.Hour)
	if a.status.setKeyError(err) {
		a.log.Warn("cannot use or rotate the WireGuard key", "error", err)
	}
	if self.WireGuard == "" {
		self.WireGuard, self.Previous = published, before
	}
	if conf.Rotate > 0 || self.Previous != "" {
		again = backend.Grace / 2
	}
	return again
}
