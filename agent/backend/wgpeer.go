package backend

import (
	"encoding/base64"
	"fmt"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// wireguardPeers collects peers by public key. A device identifies a peer by its key only, so two peers with the same
// key would take each other's addresses.
type wireguardPeers struct {
	list []kernel.WireGuardPeer
	at   map[string]int    // key bytes -> index in list
	name map[string]string // key bytes -> node name
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

// add adds a peer. A renamed node is in the store twice, with the same address, and becomes one peer.
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

// keyBytes decodes a base64 key. Several base64 strings may decode to the same key.
func keyBytes(key string) (string, error) {
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(raw) != 32 {
		return "", fmt.Errorf("%.60q is no key: want 32 bytes in base64", key)
	}
	return string(raw), nil
}

// badKey returns an error if the keys that a node published are invalid.
func badKey(n *cluster.Node) error {
	for _, k := range []string{publicKey(n), n.Previous} {
		if _, err := keyBytes(k); k != "" && err != nil {
			return fmt.Errorf("of %s: %w", n.Name, err)
		}
	}
	return nil
}
