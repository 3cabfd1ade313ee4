package kernel

import (
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"strings"

	"github.com/fairlead/fairlead/internal/hwaddr"
)

// Owner is the attachment that an object belongs to. Objects carry its tag, so cleaning up needs no memory.
type Owner struct {
	Network, ContainerID, IfName string
}

// commentMax is the longest nftables comment that nft can print.
const commentMax = 120

// TagPrefix begins the alias or comment of everything that Fairlead creates.
const TagPrefix = "fairlead "

// Tag returns the owner tag: the alias of a link, the comment of an element. It has at most 120 bytes. In a longer tag,
// the container and interface and, if needed, the network are hashes.
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

// Owns reports whether a tag is this owner's.
func (o Owner) Owns(tag string) bool { return tag == o.Tag() }

// IsTagOfNetwork reports whether a tag belongs to an attachment of a network.
func IsTagOfNetwork(network, tag string) bool {
	return strings.HasPrefix(tag, networkTag(network)) || strings.HasPrefix(tag, TagPrefix+network+" ")
}

// Hash returns 64 hexadecimal digits that derive from network, container and interface.
func (o Owner) Hash() string { return Hash(o.Network, o.ContainerID, o.IfName) }

// Hash returns 64 hexadecimal digits for a name. It is no protection against forgery: FNV-1a of 128 bits over the parts
// with their lengths, mixed and extended. A cryptographic hash would add a sixth to the start of an empty program.
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

// mix spreads every bit over all 64 bits (the finalizer of MurmurHash3).
func mix(v uint64) uint64 {
	v = (v ^ v>>33) * 0xff51afd7ed558ccd
	v = (v ^ v>>33) * 0xc4ceb9fe1a85ec53
	return v ^ v>>33
}

// LinkName returns the name of a host link: the prefix and hash digits, 15 bytes.
func (o Owner) LinkName(prefix string) string { return (prefix + o.Hash())[:15] }

// MAC returns a locally administered unicast address for one end of the attachment. An address that is set at creation
// need not be read back, and udev leaves it alone.
func (o Owner) MAC(end string) string { return MAC("mac", o.Network, o.ContainerID, o.IfName, end) }

// MAC returns a locally administered unicast address that derives from words.
func MAC(words ...string) string {
	raw, _ := hex.DecodeString(Hash(words...)[:12])
	raw[0] = raw[0]&^1 | 2
	return hwaddr.Format(raw)
}

// LinkGroup is the link group of everything that Fairlead creates: "fl" in ASCII over a fixed low half. It narrows a
// search; the alias decides.
const LinkGroup = 0x666c0001

// ParseOwnerTag parses a tag. It returns false for other software's text and for a tag with hashes.
func ParseOwnerTag(tag string) (Owner, bool) {
	rest, ok := strings.CutPrefix(tag, TagPrefix)
	f := strings.SplitN(rest, " ", 3)
	if !ok || len(f) != 3 || strings.HasPrefix(f[0], "#") {
		return Owner{}, false
	}
	return Owner{f[0], f[1], f[2]}, true
}

// SameContainer reports whether two tags belong to two attachments of one container.
func SameContainer(tag, other string) bool {
	a, ok1 := ParseOwnerTag(tag)
	b, ok2 := ParseOwnerTag(other)
	return ok1 && ok2 && a != b && a.ContainerID == b.ContainerID
}

// IsOwnerTag reports whether a tag belongs to an attachment. Other tags of Fairlead belong to shared objects.
func IsOwnerTag(tag string) bool {
	rest, ok := strings.CutPrefix(tag, TagPrefix)
	f := strings.SplitN(rest, " ", 3)
	return ok && (len(f) == 3 || len(f) == 2 && strings.HasPrefix(f[1], "#") && len(f[1]) == 25)
}
