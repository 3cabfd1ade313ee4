package ipam

import (
	"bytes"
	"hash/fnv"
	"net/netip"
	"strings"
)

// Owner identifies the attachment that an address is allocated to.
type Owner struct {
	ContainerID string
	IfName      string // "" in files written by old versions of host-local
}

func (o Owner) String() string { return strings.TrimSpace(o.ContainerID + " " + o.IfName) }

// lineBreak separates the two lines of an address file, on every system.
const lineBreak = "\r\n"

// text returns the contents of host-local's address file.
func (o Owner) text() string {
	return strings.TrimSpace(o.ContainerID) + lineBreak + o.IfName
}

// legacyText returns what host-local wrote before it knew interface names.
func (o Owner) legacyText() string { return strings.TrimSpace(o.ContainerID) }

// maxOwner is the largest size of an owner in an address file, in bytes; an IPAM plugin writes no longer ones.
const maxOwner = 4096

// parseOwner parses an address file. An empty or corrupt file has the zero Owner: the address is allocated, its owner
// unknown.
func parseOwner(data []byte) Owner {
	data = bytes.TrimSpace(data)
	if len(data) > maxOwner || bytes.IndexByte(data, 0) >= 0 {
		return Owner{}
	}
	id, ifname, _ := strings.Cut(string(data), lineBreak)
	return Owner{id, ifname}
}

// key is the index's hash of a text or an address.
type key [16]byte

func textKey(text string) (k key) {
	h := fnv.New128a()
	h.Write([]byte(text))
	h.Sum(k[:0])
	return k
}

// ownerKey returns the key of an address file's owner. Files without an owner get separate keys, so that many of them
// cost nothing.
func ownerKey(o Owner, addr netip.Addr) key {
	switch {
	case o == Owner{}:
		return textKey("\x00" + addr.String())
	case o.IfName == "":
		return textKey(o.legacyText())
	}
	return textKey(o.text())
}
