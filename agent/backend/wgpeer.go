package backend

import (
	"encoding/base64"
	"fmt"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// wireguardPeers puts peers together by their keys: a device knows a peer by that
// alone, so of two that differ each would take the other's addresses away.
type wireguardPeers struct {
	list []kernel.WireGuardPeer
	at   map[string]int    // in the list, by key's bytes
	name map[string]string // whose a key is
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

// add adds a peer. A machine whose node has another name by now is in the store twice,
// at one address, and is one peer.
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
		switch whose := w.name[raw]; {
		case known && i == 0 && w.list[at].Endpoint == p.Endpoint && w.list[at].PublicKey == p.PublicKey:
			w.list[at].AllowedIPs = append(w.list[at].AllowedIPs[:len(w.list[at].AllowedIPs):len(w.list[at].AllowedIPs)], p.AllowedIPs...)
			return nil
		case whose != "":
			return fmt.Errorf("wireguard: %s has the same key as %s: if one's disk is a copy of the other's, remove wireguard.key there", node, whose)
		}
	}
	for _, raw := range keys {
		w.at[raw], w.name[raw] = len(w.list), node
	}
	w.list = append(w.list, p)
	return nil
}

// keyBytes are what a key in base64 stands for: several words may stand for the same.
func keyBytes(key string) (string, error) {
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(raw) != 32 {
		return "", fmt.Errorf("%.60q is no key: want 32 bytes in base64", key)
	}
	return string(raw), nil
}

// badKey says what is wrong with the keys that a node published.
func badKey(n *cluster.Node) error {
	for _, k := range []string{publicKey(n), n.Previous} {
		if _, err := keyBytes(k); k != "" && err != nil {
			return fmt.Errorf("of %s: %w", n.Name, err)
		}
	}
	return nil
}
