package kernel

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// Owner names the attachment that an object belongs to. Every object that can
// carry a mark carries it, so cleaning up needs no memory.
type Owner struct {
	Network, ContainerID, IfName string
}

// commentMax is how long an nftables comment may be, so that nft can print it.
const commentMax = 120

// markPrefix begins the alias or comment of everything that is ours.
const markPrefix = "fairlead "

// Mark is the owner as text: a link's alias, an element's comment.
// It is at most 120 bytes: past that container and interface, and if need be
// the network, become hashes.
func (o Owner) Mark() string {
	s := markPrefix + o.Network + " " + o.ContainerID + " " + o.IfName
	if len(s) <= commentMax {
		return s
	}
	return networkMark(o.Network) + "#" + o.Hash()[:24]
}

func networkMark(network string) string {
	if len(network) > 64 {
		network = "#" + hash(network)[:24]
	}
	return markPrefix + network + " "
}

// Owns tells whether a mark is this owner's.
func (o Owner) Owns(mark string) bool { return mark == o.Mark() }

// MarkOf tells whether a mark belongs to an attachment of a network.
func MarkOf(network, mark string) bool {
	return strings.HasPrefix(mark, networkMark(network)) || strings.HasPrefix(mark, markPrefix+network+" ")
}

// Hash is 64 hexadecimal digits derived from network, container and interface.
func (o Owner) Hash() string { return hash(o.Network, o.ContainerID, o.IfName) }

func hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		var n [4]byte
		binary.BigEndian.PutUint32(n[:], uint32(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// LinkName derives the name of a host link: a prefix and hash digits, 15 bytes.
func (o Owner) LinkName(prefix string) string { return (prefix + o.Hash())[:15] }

// MAC derives a locally administered unicast address for one end of the
// attachment: given at birth it needs no read-back, and udev leaves it alone.
func (o Owner) MAC(end string) string { return MAC("mac", o.Network, o.ContainerID, o.IfName, end) }

// MAC derives a locally administered unicast address from words.
func MAC(words ...string) string {
	raw, _ := hex.DecodeString(hash(words...)[:12])
	raw[0] = raw[0]&^1 | 2
	s := hex.EncodeToString(raw)
	return s[0:2] + ":" + s[2:4] + ":" + s[4:6] + ":" + s[6:8] + ":" + s[8:10] + ":" + s[10:12]
}

// Group is the link group of everything that Fairlead makes: "fl" in ASCII
// over a fixed low half. It narrows a search; the alias decides.
const Group = 0x666c0001

// ParseMark reads a mark back; false if it is not ours or holds a hash.
func ParseMark(mark string) (Owner, bool) {
	rest, ok := strings.CutPrefix(mark, markPrefix)
	f := strings.SplitN(rest, " ", 3)
	if !ok || len(f) != 3 || strings.HasPrefix(f[0], "#") {
		return Owner{}, false
	}
	return Owner{f[0], f[1], f[2]}, true
}
