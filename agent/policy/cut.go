package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"

	"github.com/fairlead/fairlead/kernel/nftable"
)

// CutTableName is the name of the table that drops the packets of connections that policy forbids.
const CutTableName = TableName + "-cut"

// cutHooks are before policy, which accepts the packets of connections that exist: those that the node forwards, gets and
// sends.
var cutHooks = [...]string{"forward", "input", "output"}

const cutPriority = -11

// The sets of the table of cut connections.
const (
	cutSet    = "connections"
	cutTCPSet = "tcp"
)

// Cut is the connections whose packets are dropped, in both directions: those of TCP by their ends, others by the numbers of
// the kernel's entries.
//
// Connection tracking takes any packet of TCP for the first one of a connection that it does not know
// (net.netfilter.nf_conntrack_tcp_loose). So a connection whose entry ends could continue backwards, if policy allows that
// direction. It is dropped without an entry, too.
type Cut struct {
	Numbers map[uint32]bool
	TCP     map[TCP]bool
}

// Empty reports whether no connection is cut.
func (c Cut) Empty() bool { return len(c.Numbers)+len(c.TCP) == 0 }

// TCP is a connection of TCP, as a node forwards or gets its first packet.
type TCP struct{ Src, Dst netip.AddrPort }

// Packet returns the first packet of the connection.
func (c TCP) Packet() Packet { return Packet{c.Src.Addr(), c.Dst.Addr(), "TCP", c.Dst.Port()} }

func (c TCP) key() string {
	return fmt.Sprintf("%s . %d . %s . %d", c.Src.Addr(), c.Src.Port(), c.Dst.Addr(), c.Dst.Port())
}

// Table returns the table that drops the packets. A packet's ends are searched as they are and exchanged, so that a
// connection is one element, and the element says which end opened the connection.
func (c Cut) Table() *nftable.Table {
	t := nftable.New(TableFamily, CutTableName)
	numbers := &nftable.Set{Type: "ct id", Elements: map[string]string{}}
	for n := range c.Numbers {
		numbers.Elements[strconv.FormatUint(uint64(n), 10)] = ""
	}
	t.Sets[cutSet] = numbers
	// Policy itself decides about all packets but these. It lets a pod send to its own node by multicast and broadcast, and
	// such a flow, which nobody answers, never counts as established.
	rules := []nftable.Rule{{Text: "meta l4proto != tcp ct state established,related ct id @" + cutSet + " counter drop"}}
	for f, ip := range ipWords {
		name := cutTCP(f)
		t.Sets[name] = &nftable.Set{Type: fmt.Sprintf("%[1]s . inet_service . %[1]s . inet_service", addrTypes[f]), Elements: map[string]string{}}
		for _, ends := range [2]string{"%[1]ssaddr . th sport . %[1]sdaddr . th dport", "%[1]sdaddr . th dport . %[1]ssaddr . th sport"} {
			rules = append(rules, nftable.Rule{Text: "meta l4proto tcp " + fmt.Sprintf(ends, ip) + " @" + name + " counter drop"})
		}
	}
	for x := range c.TCP {
		t.Sets[cutTCP(familyOf(x.Src.Addr()))].Elements[x.key()] = ""
	}
	for _, hook := range cutHooks {
		t.Chains["cut-"+hook] = &nftable.Chain{Hook: fmt.Sprintf("type filter hook %s priority %d", hook, cutPriority), Rules: rules}
	}
	return t
}

func cutTCP(family int) string { return cutTCPSet + [2]string{"4", "6"}[family] }

// CutChanges names what may differ between two tables of cut connections.
func CutChanges() nftable.Changes {
	return nftable.Changes{Sets: map[string]bool{cutSet: true, cutTCP(0): true, cutTCP(1): true}}
}

// CutTCP returns the connections of TCP in the kernel's table. read returns the elements of a set. Elements that are
// invalid, which somebody else must have written, are ignored.
func CutTCP(read func(t *nftable.Table, set string) (map[string]string, error)) (map[TCP]bool, error) {
	out := map[TCP]bool{}
	for f := range addrTypes {
		elements, err := read(Cut{}.Table(), cutTCP(f))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for key := range elements {
			if x, err := parseTCP(key); err == nil {
				out[x] = true
			}
		}
	}
	return out, nil
}

// parseTCP is the reverse of TCP.key.
func parseTCP(key string) (TCP, error) {
	src, sport, dst, dport, err := "", uint16(0), "", uint16(0), error(nil)
	if _, err = fmt.Sscanf(key, "%s . %d . %s . %d", &src, &sport, &dst, &dport); err != nil {
		return TCP{}, err
	}
	from, err1 := netip.ParseAddr(src)
	to, err2 := netip.ParseAddr(dst)
	return TCP{netip.AddrPortFrom(from, sport), netip.AddrPortFrom(to, dport)}, errors.Join(err1, err2)
}
