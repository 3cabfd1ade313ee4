package kernel

import (
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"strings"

	"github.com/fairlead/fairlead/internal/hwaddr"
)

// Owner names the attachment that an object belongs to. Every object that can
// carry a mark carries it, so cleaning up needs no memory.
type Owner struct {
	Network, ContainerID, IfName string
}

// commentMax is how long an nftables comment may be, so that nft can print it.
const commentMax = 120

// markPrefix begins the alias or comment of everything that is ours.
const TagPrefix = "fairlead "

// Mark is the owner as text: a link's alias, an element's comment.
// It is at most 120 bytes: past that container and interface, and if need be
// the network, become hashes.
func (o Owner) Tag() string {
	s := TagPrefix + o.Network + " " + o.ContainerID + " " + o.IfName
	if len(s) <= commentMax {
		return s
	}
	return networkTag(o.Network) + "#" + o.Hash()[:24]
}

func networkTag(network string) string {
	if len(network) > 64 {
		network = "#" + Hash(network)[:24]
	}
	return TagPrefix + network + " "
}

// Owns tells whether a mark is this owner's.
func (o Owner) Owns(mark string) bool { return mark == o.Tag() }

// MarkOf tells whether a mark belongs to an attachment of a network.
func IsTagOfNetwork(network, mark string) bool {
	return strings.HasPrefix(mark, networkTag(network)) || strings.HasPrefix(mark, TagPrefix+network+" ")
}

// Hash is 64 hexadecimal digits derived from network, container and interface.
func (o Owner) Hash() string { return Hash(o.Network, o.ContainerID, o.IfName) }

// hash is a name, not a secret: FNV-1a of 128 bits over the parts with their
// lengths, its halves mixed, each twice for 64 digits. A cryptographic one would
// cost a sixth of an empty program's start.
func Hash(parts ...string) string {
	h := fnv.New128a()
	for _, p := range parts {
		var n [4]byte
		binary.BigEndian.PutUint32(n[:], uint32(len(p)))
		_, _ = h.Write(n[:])
		_, _ = h.Write([]byte(p))
	}
	sum := h.Sum(nil)
	x, y := binary.BigEndian.Uint64(sum), binary.BigEndian.Uint64(sum[8:])
	var out []byte
	for i := range uint64(2) {
		out = binary.BigEndian.AppendUint64(out, mix(x^mix(y+i)))
		out = binary.BigEndian.AppendUint64(out, mix(y^mix(x+i)))
	}
	return hex.EncodeToString(out)
}

// mix spreads every bit over all 64 (the finalizer of MurmurHash3).
func mix(v uint64) uint64 {
	v = (v ^ v>>33) * 0xff51afd7ed558ccd
	v = (v ^ v>>33) * 0xc4ceb9fe1a85ec53
	return v ^ v>>33
}

// LinkName derives the name of a host link: a prefix and hash digits, 15 bytes.
func (o Owner) LinkName(prefix string) string { return (prefix + o.Hash())[:15] }

// MAC derives a locally administered unicast address for one end of the
// attachment: given at birth it needs no read-back, and udev leaves it alone.
func (o Owner) MAC(end string) string { return MAC("mac", o.Network, o.ContainerID, o.IfName, end) }

// MAC derives a locally administered unicast address from words.
func MAC(words ...string) string {
	raw, _ := hex.DecodeString(Hash(words...)[:12])
	raw[0] = raw[0]&^1 | 2
	return hwaddr.Format(raw)
}

// Group is the link group of everything that Fairlead makes: "fl" in ASCII
// over a fixed low half. It narrows a search; the alias decides.
const LinkGroup = 0x666c0001

// ParseMark reads a mark back; false if it is not ours or holds a hash.
func ParseOwnerTag(mark string) (Owner, bool) {
	rest, ok := strings.CutPrefix(mark, TagPrefix)
	f := strings.SplitN(rest, " ", 3)
	if !ok || len(f) != 3 || strings.HasPrefix(f[0], "#") {
		return Owner{}, false
	}
	return Owner{f[0], f[1], f[2]}, true
}

// SameContainer tells whether two marks are those of two attachments of one
// container, to different networks or by different interfaces.
func SameContainer(mark, other string) bool {
	a, ok1 := ParseOwnerTag(mark)
	b, ok2 := ParseOwnerTag(other)
	return ok1 && ok2 && a != b && a.ContainerID == b.ContainerID
}

// IsOwnerMark tells whether a mark is an attachment's: others of ours stand for
// what attachments share.
func IsOwnerTag(mark string) bool {
	rest, ok := strings.CutPrefix(mark, TagPrefix)
	f := strings.SplitN(rest, " ", 3)
	return ok && (len(f) == 3 || len(f) == 2 && strings.HasPrefix(f[1], "#") && len(f[1]) == 25)
}
