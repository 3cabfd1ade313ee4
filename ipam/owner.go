package ipam

import (
	"bytes"
	"hash/fnv"
	"net/netip"
	"strings"
)

// Owner is who holds an address.
type Owner struct {
	ContainerID string
	IfName      string // "" in files written by old versions of host-local
}

func (o Owner) String() string { return strings.TrimSpace(o.ContainerID + " " + o.IfName) }

// lineBreak parts the two lines of an address file, on every system.
const lineBreak = "\r\n"

// text is what host-local writes into an address file.
func (o Owner) text() string {
	return strings.TrimSpace(o.ContainerID) + lineBreak + o.IfName
}

// legacyText is what it wrote before it knew interface names.
func (o Owner) legacyText() string { return strings.TrimSpace(o.ContainerID) }

// maxOwner is how much of an address file can be an owner, in bytes; a longer
// one was not written by an IPAM plugin.
const maxOwner = 4096

// parseOwner reads an address file. A file that names nobody, empty or
// corrupt, has the zero Owner: someone holds it, nobody knows who.
func parseOwner(data []byte) Owner {
	data = bytes.TrimSpace(data)
	if len(data) > maxOwner || bytes.IndexByte(data, 0) >= 0 {
		return Owner{}
	}
	id, ifname, _ := strings.Cut(string(data), lineBreak)
	return Owner{id, ifname}
}

// key stands for a text or an address in the index.
type key [16]byte

func textKey(text string) (k key) {
	h := fnv.New128a()
	h.Write([]byte(text))
	h.Sum(k[:0])
	return k
}

// ownerKey is the key under which an address file's holder is found. Files
// that name nobody are kept apart, so that many of them cost nothing.
func ownerKey(o Owner, addr netip.Addr) key {
	switch {
	case o == Owner{}:
		return textKey("\x00" + addr.String())
	case o.IfName == "":
		return textKey(o.legacyText())
	}
	return textKey(o.text())
}
