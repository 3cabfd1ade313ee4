package reconcile

import "fmt"

// Describe returns the content of an event, for tests that did not expect it.
func (ev Event) Describe() string {
	return fmt.Sprintf("type %d, of port %d, nftables %v, %d bytes: %x", ev.typ, ev.port, ev.nft, len(ev.body), ev.body[:min(len(ev.body), 160)])
}
