package backend

import (
	"encoding/base64"
	"fmt"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// wireguardPeers merges peers by key. A device identifies a peer by its key alone, so of two peers with one key each
// would take the other's addresses.
type wireguardPeers struct {
	list []kernel.WireGuardPeer
	at   map[string]int    // index in the list, by decoded key
	name map[string]string // node name, by decoded key
}

func newWireguardPeers(self *cluster.Node) *wireguardPeers {
	w := &wireguardPeers{at: map[string]int{}, name: map[string]string{}}
	for _, k := range []string{self.WireGuard, self.Previous} {
		if raw, err := keyBytes(k); err == nil {
			w.name[raw] = self.Name
		}
	}
	return w
}

// add adds a peer. A renamed machine has two nodes in the store with one address; they are one peer.
func (w *wireguardPeers) add(node string, p kernel.WireGuardPeer) error {
	keys := []string{p.PublicKey}
	if p.Previous != "" {
		keys = append(keys, p.Previous)
	}
	for i, k := range keys {
		raw, err := keyBytes(k)
		if err != nil {
			return err
		}
		keys[i] = raw
		at, known := w.at[raw]
		switch other := w.name[raw]; {
		case known && i == 0 && w.list[at].Endpoint == p.Endpoint && w.list[at].PublicKey == p.PublicKey:
			w.list[at].AllowedIPs = append(w.list[at].AllowedIPs[:len(w.list[at].AllowedIPs):len(w.list[at].AllowedIPs)], p.AllowedIPs...)
			return nil
		case other != "":
			return fmt.Errorf("wireguard: %s has the same key as %s: if the disk of one is a copy of the other's, remove wireguard.key there", node, other)
		}
	}
	for _, raw := range keys {
		w.at[raw], w.name[raw] = len(w.list), node
	}
	w.list = append(w.list, p)
	return nil
}

// keyBytes decodes a base64 key: several spellings can mean the same key.
func keyBytes(key string) (string, error) {
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(raw) != 32 {
		return "", fmt.Errorf("%.60q is not a WireGuard key: want 32 bytes in base64", key)
	}
	return string(raw), nil
}

// badKey returns what is wrong with a node's published keys, or nil.
func badKey(n *cluster.Node) error {
	for _, k := range []string{publicKey(n), n.Previous} {
		if _, err := keyBytes(k); k != "" && err != nil {
			return fmt.Errorf("key of node %s: %w", n.Name, err)
		}
	}
	return nil
}
