package kernel

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// NFT is a part of a ruleset that attachments share: a table, chain, set, map
// or rule, its text as nft(8) has it. The parts of one Group belong to a
// network and go, in one transaction, when the group's sets are empty.
type NFT struct {
	base
	Family     string `json:",omitzero"` // "inet", "fairlead"
	Table      string `json:",omitzero"`
	Kind       string `json:"What,omitzero"` // "table", "chain", "set", "map" or "rule"
	Name       string `json:",omitzero"`     // the chain's, set's or map's; of a rule, its chain's
	Text       string `json:",omitzero"`     // a chain's hook, a set's type, a rule's statements
	Network    string `json:",omitzero"`     // "": of all networks
	ChainGroup string `json:"Group,omitzero"`

	// Addrs are all that a set of a Reconciler's table holds.
	Addrs []netip.Addr `json:",omitzero"`
}

// Element is one element of a set or map, owned by an attachment. It is added
// exclusively: a living owner is named in the error, a dead one replaced.
type Element struct {
	base
	Family   string `json:",omitzero"`
	Table    string `json:",omitzero"`
	Set      string `json:",omitzero"`
	Type     string `json:",omitzero"` // the set's
	Key      string `json:",omitzero"` // Value "" in a set
	Value    string `json:",omitzero"`
	OwnerTag string `json:"Mark,omitzero"` // comment: the owner
}

// TakenError says that an element belongs to another attachment.
type TakenError struct {
	Key, OwnerTag string
}

func (t *TakenError) Error() string {
	if t.OwnerTag == "" {
		return t.Key + " is already taken"
	}
	return t.Key + " is already taken by " + strings.TrimPrefix(t.OwnerTag, tagPrefix)
}

// Is makes it the kernel's EEXIST.
func (t *TakenError) Is(err error) bool { return err == unix.EEXIST }

const (
	nfprotoInet   = 1
	nfprotoARP    = 3
	nfprotoBridge = 7
)

func nftFamily(name string) byte {
	switch name {
	case "inet":
		return nfprotoInet
	case "bridge":
		return nfprotoBridge
	case "arp":
		return nfprotoARP
	case "ip6":
		return unix.AF_INET6
	}
	return unix.AF_INET
}

func (n *NFT) kind() string { return "nft" }
func (n *NFT) Side() Side   { return Host }
func (n *NFT) Shared() bool { return true }

func (n *NFT) String() string {
	s := "nft add " + n.Kind + " " + n.Family + " " + n.Table
	switch n.Kind {
	case "table":
		return s
	case "rule":
		return s + " " + n.Name + " " + n.Text
	case "chain":
		if n.Text == "" {
			return s + " " + n.Name
		}
		return s + " " + n.Name + " { " + n.Text + "; }"
	}
	if n.Text == targetType { // for which nft has no name
		return s + " " + n.Name + " { typeof i" + n.Text + "; }"
	}
	if len(n.Addrs) > 0 {
		return s + " " + n.Name + " { type " + n.Text + "; elements = { " + n.addrs() + " }; }"
	}
	return s + " " + n.Name + " { type " + n.Text + "; }"
}

func (n *NFT) addrs() string {
	out := make([]byte, 0, 40*len(n.Addrs))
	for i, a := range n.Addrs {
		if i > 0 {
			out = append(out, ", "...)
		}
		out = a.AppendTo(out)
	}
	return string(out)
}

// mark is a rule's comment: by it the rule is known again.
func (n *NFT) tag() string {
	id := "#" + hash(n.Name, n.Text)[:12]
	if n.Network == "" {
		return tagPrefix + id
	}
	return networkTag(n.Network) + id
}

func (n *NFT) ensure(e *Engine) error            { e.nft = append(e.nft, n); return nil }
func (n *NFT) remove(e *Engine) error            { return nil }
func (x *Element) kind() string                  { return "element" }
func (x *Element) Side() Side                    { return Host }
func (x *Element) Shared() bool                  { return false }
func (x *Element) ensure(e *Engine) error        { e.nft = append(e.nft, x); return nil }
func (x *Element) remove(e *Engine) error        { e.nft = append(e.nft, x); return nil }
func (x *Element) tableAndSet() (string, string) { return x.Family + " " + x.Table, x.Set }

func (x *Element) String() string {
	s := "nft add element " + x.Family + " " + x.Table + " " + x.Set + " { " + x.Key
	if x.OwnerTag != "" {
		s += ` comment "` + x.OwnerTag + `"`
	}
	if x.Value != "" {
		s += " : " + x.Value
	}
	return s + " }"
}

func (n *NFT) diff(e *Engine) ([]string, error) {
	if n.Kind == "rule" {
		have, err := e.rulesToCheck(n)
		if err != nil {
			return nil, err
		}
		for _, r := range have {
			if r.comment == n.tag() {
				return nil, nil
			}
		}
		return []string{"is missing"}, nil
	}
	get := map[string]uint16{"table": unix.NFT_MSG_GETTABLE, "chain": unix.NFT_MSG_GETCHAIN, "set": unix.NFT_MSG_GETSET, "map": unix.NFT_MSG_GETSET}
	body := nfgen(n.Family)
	body.String(unix.NFTA_TABLE_NAME, n.Table) // the table is attribute 1 of all
	switch n.Kind {
	case "chain":
		body.String(unix.NFTA_CHAIN_NAME, n.Name)
	case "set", "map":
		body.String(unix.NFTA_SET_NAME, n.Name)
	}
	_, err := e.askNFT(get[n.Kind], body)
	return nil, err
}

func (x *Element) diff(e *Engine) ([]string, error) {
	have, err := e.element(x)
	if err != nil {
		return nil, err
	}
	if SameContainer(have.comment, x.OwnerTag) {
		return nil, nil // see evict
	}
	var d []string
	if have.comment != x.OwnerTag {
		d = append(d, fmt.Sprintf("belongs to %q", have.comment))
	}
	if t, err := parseSetType(x.Type); err == nil && x.Value != "" {
		if v, err := t.data.value(x.Value); err == nil && string(v) != string(have.data) {
			d = append(d, "maps to something else")
		}
	}
	return d, nil
}

// nfgen is struct nfgenmsg of a family.
func nfgen(family string) netlink.Buffer {
	return append(make(netlink.Buffer, 0, 128), nftFamily(family), unix.NFNETLINK_V0, 0, 0)
}

const nftSubsystem = unix.NFNL_SUBSYS_NFTABLES << 8

func (e *Engine) askNFT(msg uint16, body netlink.Buffer) (netlink.Response, error) {
	c, err := e.netfilter()
	if err != nil {
		return netlink.Response{}, err
	}
	resp, err := c.Do([]netlink.Request{{Type: nftSubsystem | msg, Flags: unix.NLM_F_ACK, Body: body}})
	if err != nil {
		return netlink.Response{}, err
	}
	return resp[0], resp[0].Err
}

// comment is the TLV that nft(8) prints as a comment, of rules and elements.
func commentTLV(s string) []byte {
	return append(append([]byte{0, byte(len(s) + 1)}, s...), 0)
}

func parseComment(p []byte) string {
	for len(p) >= 2 && len(p) >= 2+int(p[1]) {
		if p[0] == 0 {
			return netlink.Text(p[2 : 2+int(p[1])])
		}
		p = p[2+int(p[1]):]
	}
	return ""
}

type ruleInfo struct {
	chain   string
	handle  []byte
	comment string
}

// rules lists a chain's rules in order; chain "": those of all of the table's.
func (e *Engine) rules(family, table, chain string) ([]ruleInfo, error) {
	c, err := e.netfilter()
	if err != nil {
		return nil, err
	}
	body := nfgen(family)
	body.String(unix.NFTA_RULE_TABLE, table)
	if chain != "" {
		body.String(unix.NFTA_RULE_CHAIN, chain)
	}
	msgs, err := c.Dump(netlink.Request{Type: nftSubsystem | unix.NFT_MSG_GETRULE, Body: body})
	if err != nil {
		return nil, fmt.Errorf("list rules of %s %s %s: %w", family, table, chain, err)
	}
	var out []ruleInfo
	for _, m := range msgs {
		if len(m) > 4 {
			out = append(out, ruleInfo{netlink.Text(netlink.Attr(m[4:], unix.NFTA_RULE_CHAIN)), netlink.Attr(m[4:], unix.NFTA_RULE_HANDLE), parseComment(netlink.Attr(m[4:], unix.NFTA_RULE_USERDATA))})
		}
	}
	return out, nil
}

// rulesToCheck are a chain's, of our table out of one list of all for a Check.
func (e *Engine) rulesToCheck(n *NFT) ([]ruleInfo, error) {
	if e.checkCache == nil || n.Family != "inet" || n.Table != Table {
		return e.rules(n.Family, n.Table, n.Name)
	}
	if e.checkCache.rules == nil {
		all, err := e.rules(n.Family, n.Table, "")
		if err != nil {
			return nil, err
		}
		e.checkCache.rules = map[string][]ruleInfo{}
		for _, r := range all {
			e.checkCache.rules[r.chain] = append(e.checkCache.rules[r.chain], r)
		}
	}
	return e.checkCache.rules[n.Name], nil
}

type elementInfo struct {
	key, data []byte
	comment   string
}

// element reads one element by its key.
func (e *Engine) element(x *Element) (elementInfo, error) {
	body, err := x.body(false)
	if err != nil {
		return elementInfo{}, err
	}
	resp, err := e.askNFT(unix.NFT_MSG_GETSETELEM, body)
	if err != nil || len(resp.Messages) == 0 {
		return elementInfo{}, err
	}
	list := parseElements(resp.Messages)
	if len(list) == 0 {
		return elementInfo{}, unix.ENOENT
	}
	return list[0], nil
}

func parseElements(msgs [][]byte) (out []elementInfo) {
	for _, m := range msgs {
		if len(m) < 4 {
			continue
		}
		netlink.EachAttr(netlink.Attr(m[4:], unix.NFTA_SET_ELEM_LIST_ELEMENTS), func(_ uint16, p []byte) {
			out = append(out, elementInfo{
				key:     netlink.Attr(netlink.Attr(p, unix.NFTA_SET_ELEM_KEY), unix.NFTA_DATA_VALUE),
				data:    netlink.Attr(netlink.Attr(p, unix.NFTA_SET_ELEM_DATA), unix.NFTA_DATA_VALUE),
				comment: parseComment(netlink.Attr(p, unix.NFTA_SET_ELEM_USERDATA)),
			})
		})
	}
	return out
}

// body is the message that adds an element, or, with its key alone, names it.
func (x *Element) body(whole bool) (netlink.Buffer, error) {
	t, err := parseSetType(x.Type)
	if err != nil {
		return nil, err
	}
	key, err := t.key.value(x.Key)
	if err != nil {
		return nil, err
	}
	var data []byte
	if x.Value != "" {
		if data, err = t.data.value(x.Value); err != nil {
			return nil, err
		}
	}
	b := nfgen(x.Family)
	b.String(unix.NFTA_SET_ELEM_LIST_TABLE, x.Table)
	b.String(unix.NFTA_SET_ELEM_LIST_SET, x.Set)
	b.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(b *netlink.Buffer) {
		b.Nest(unix.NFTA_LIST_ELEM, func(b *netlink.Buffer) {
			b.Nest(unix.NFTA_SET_ELEM_KEY, func(b *netlink.Buffer) { b.Bytes(unix.NFTA_DATA_VALUE, key) })
			if whole && data != nil {
				b.Nest(unix.NFTA_SET_ELEM_DATA, func(b *netlink.Buffer) { b.Bytes(unix.NFTA_DATA_VALUE, data) })
			}
			if whole && x.OwnerTag != "" {
				b.Bytes(unix.NFTA_SET_ELEM_USERDATA, commentTLV(x.OwnerTag))
			}
		})
	})
	return b, nil
}
