package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/nft"
)

// NFT is a part of a ruleset that attachments share: a table, chain, set, map or rule, with
// the text of nft(8). The parts of one ChainGroup belong to one network. One transaction
// deletes them all when the sets of the group become empty.
type NFT struct {
	base
	Family     string `json:",omitzero"` // "inet", "bridge", "arp"
	Table      string `json:",omitzero"`
	Kind       string `json:"What,omitzero"` // "table", "chain", "set", "map" or "rule"
	Name       string `json:",omitzero"`     // of the chain, set or map; of a rule: its chain
	Text       string `json:",omitzero"`     // a chain's hook, a set's type, a rule's statements
	Network    string `json:",omitzero"`     // "": all networks
	ChainGroup string `json:"Group,omitzero"`

	// Addrs is the whole content of a set in the table of a reconciler.
	Addrs []netip.Addr `json:",omitzero"`
}

// Element is one element of a set or map that an attachment owns. Adding it fails if its key
// belongs to a live owner; an element of a dead owner is replaced.
type Element struct {
	base
	Family   string `json:",omitzero"`
	Table    string `json:",omitzero"`
	Set      string `json:",omitzero"`
	Type     string `json:",omitzero"` // of the set
	Key      string `json:",omitzero"`
	Value    string `json:",omitzero"`     // "" in a set
	OwnerTag string `json:"Mark,omitzero"` // the element's comment
}

// TakenError reports that an element belongs to another attachment.
type TakenError struct {
	Key, OwnerTag string
}

func (t *TakenError) Error() string {
	if t.OwnerTag == "" {
		return t.Key + " is already taken"
	}
	return t.Key + " is already taken by " + strings.TrimPrefix(t.OwnerTag, TagPrefix)
}

// Is makes a TakenError match EEXIST, which the kernel returns.
func (t *TakenError) Is(err error) bool { return err == unix.EEXIST }

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
	if nft.IsTypeof(n.Text) {
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

// Tag returns the comment of a rule, which identifies the rule.
func (n *NFT) Tag() string {
	id := "#" + Hash(n.Name, n.Text)[:12]
	if n.Network == "" {
		return TagPrefix + id
	}
	return networkTag(n.Network) + id
}

// AddRequest returns the request that creates the part.
func (n *NFT) AddRequest() (netlink.Request, error) {
	p := n.part()
	if n.Kind == "rule" {
		p.Comment = n.Tag()
	}
	return p.Add()
}

func (n *NFT) part() nft.Part {
	return nft.Part{Family: n.Family, Table: n.Table, Kind: n.Kind, Name: n.Name, Text: n.Text}
}

func (n *NFT) ensure(e *Engine) error     { e.nft = append(e.nft, n); return nil }
func (n *NFT) remove(*Engine) error       { return nil }
func (x *Element) kind() string           { return "element" }
func (x *Element) Side() Side             { return Host }
func (x *Element) Shared() bool           { return false }
func (x *Element) ensure(e *Engine) error { e.nft = append(e.nft, x); return nil }
func (x *Element) remove(e *Engine) error { e.leaving = append(e.leaving, x); return nil }

// id returns what identifies the element: its set and key.
func (x *Element) id() string { return x.setName() + " " + x.Key }

func (x *Element) setName() string { return nft.SetName(x.Family, x.Table, x.Set) }

// Wire returns the element as package nft encodes it.
func (x *Element) Wire() *nft.Element {
	return &nft.Element{Family: x.Family, Table: x.Table, Set: x.Set, Type: x.Type, Key: x.Key, Value: x.Value, Comment: x.OwnerTag}
}

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

// ReadNFT asks for one part of a ruleset and returns the reply.
func (e *Engine) ReadNFT(r netlink.Request) (netlink.Response, error) {
	if resp, ok := e.readAhead(r); ok {
		return resp, resp.Err
	}
	c, err := e.Netfilter()
	if err != nil {
		return netlink.Response{}, err
	}
	resp, err := c.Do([]netlink.Request{r})
	if err != nil {
		return netlink.Response{}, err
	}
	return resp[0], resp[0].Err
}

// NFTRule is a rule as the kernel lists it, its statements not decoded.
type NFTRule struct {
	Chain   string
	Comment string

	handle []byte
	attrs  []byte // encoded
}

// NFTRules lists the rules of a chain in order, or those of all chains of the table if
// chain is "".
func (e *Engine) NFTRules(family, table, chain string) ([]NFTRule, error) {
	c, err := e.Netfilter()
	if err != nil {
		return nil, err
	}
	body := nft.Message(family)
	body.String(unix.NFTA_RULE_TABLE, table)
	if chain != "" {
		body.String(unix.NFTA_RULE_CHAIN, chain)
	}
	msgs, err := c.Dump(netlink.Request{Type: nft.Subsystem | unix.NFT_MSG_GETRULE, Body: body})
	if err != nil {
		return nil, fmt.Errorf("list rules of %s %s %s: %w", family, table, chain, err)
	}
	var out []NFTRule
	for _, m := range msgs {
		if len(m) > 4 {
			out = append(out, NFTRule{netlink.Text(netlink.Attr(m[4:], unix.NFTA_RULE_CHAIN)), nft.ParseComment(netlink.Attr(m[4:], unix.NFTA_RULE_USERDATA)), netlink.Attr(m[4:], unix.NFTA_RULE_HANDLE), m[4:]})
		}
	}
	return out, nil
}

// element reads one element by its key.
func (e *Engine) element(x *Element) (nft.ElementInfo, error) {
	get, err := x.query()
	if err != nil {
		return nft.ElementInfo{}, err
	}
	resp, err := e.ReadNFT(get)
	if errors.Is(err, unix.EINVAL) { // the set has keys of another size
		err = unix.ENOENT
	}
	if err != nil || len(resp.Messages) == 0 {
		return nft.ElementInfo{}, err
	}
	list := nft.ParseElements(resp.Messages)
	if len(list) == 0 {
		return nft.ElementInfo{}, unix.ENOENT
	}
	return list[0], nil
}

// ListNFT lists parts of rulesets. There are none if their table or chain does not exist, or if the kernel lacks
// nftables. With the error EAGAIN it returns the parts it saw, see netlink.Conn.Dump.
func (e *Engine) ListNFT(msg uint16, body netlink.Buffer) ([][]byte, error) {
	c, err := e.Netfilter()
	if lacksSubsystem(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	msgs, err := c.Dump(netlink.Request{Type: nft.Subsystem | msg, Body: body})
	if netlink.IsAbsent(err) || lacksSubsystem(err) {
		return nil, nil
	}
	return msgs, err
}

// lacksSubsystem reports whether the error of a valid netfilter request means that the kernel lacks the request's
// subsystem, or the netfilter sockets (EPROTONOSUPPORT).
func lacksSubsystem(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPROTONOSUPPORT)
}

// nftSets lists the sets of our tables, as elements without a key. It skips sets of a type that Fairlead never uses:
// another program added them.
func (e *Engine) nftSets() (out []Element, err error) {
	for _, family := range []string{"inet", "bridge", "arp"} { // where Fairlead has a table
		b := nft.Message(family)
		b.String(unix.NFTA_SET_TABLE, Table)
		msgs, err := e.ListNFT(unix.NFT_MSG_GETSET, b)
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			return nil, fmt.Errorf("list nftables sets: %w", err)
		}
		for _, m := range msgs {
			if len(m) > 4 && netlink.Text(netlink.Attr(m[4:], unix.NFTA_SET_TABLE)) == Table {
				name, typ := nft.ParseSet(m[4:])
				if _, err := nft.ParseSetType(typ); err != nil {
					continue
				}
				out = append(out, Element{Family: family, Table: Table, Set: name, Type: typ})
			}
		}
	}
	return out, nil
}

// NFTElements lists the elements of a set, which an element without a key names. A set that
// does not exist is empty. With the error EAGAIN it returns the elements it saw, see
// netlink.Conn.Dump.
func (e *Engine) NFTElements(set Element) ([]*Element, error) {
	c, err := e.Netfilter()
	if err != nil {
		return nil, err
	}
	t, err := nft.ParseSetType(set.Type)
	if err != nil {
		return nil, err
	}
	msgs, err := nft.DumpElements(c, set.Family, set.Table, set.Set)
	if netlink.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		err = fmt.Errorf("list set %s: %w", set.Set, err)
	}
	var out []*Element
	for _, x := range nft.ParseElements(msgs) {
		el := set
		el.Key, el.OwnerTag = t.Key.Format(x.Key), x.Comment
		if len(t.Data) > 0 {
			el.Value = t.Data.Format(x.Data)
		}
		out = append(out, &el)
	}
	return out, err
}

// nftTransaction sends requests as one transaction.
func (e *Engine) nftTransaction(reqs []netlink.Request) error {
	c, err := e.Netfilter()
	if err != nil {
		return err
	}
	resp, err := c.Transact(reqs, 0)
	errs := []error{err}
	for _, r := range resp {
		errs = append(errs, r.Err)
	}
	return errors.Join(errs...)
}

// deleteRules deletes the rules of a chain whose comments match, in one transaction. It
// returns os.ErrNotExist if there are none.
func (e *Engine) deleteRules(family, table, chain string, match func(comment string) bool) error {
	reqs, err := e.ruleDeletions(family, table, chain, match)
	if err != nil {
		return err
	}
	if len(reqs) == 0 {
		return os.ErrNotExist
	}
	return e.nftTransaction(reqs)
}

// ruleDeletions returns the requests that delete the rules of a chain whose comments match; without the chain, none.
func (e *Engine) ruleDeletions(family, table, chain string, match func(comment string) bool) (reqs []netlink.Request, _ error) {
	have, err := e.NFTRules(family, table, chain)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, r := range have {
		if r.Comment != "" && match(r.Comment) {
			reqs = append(reqs, nft.Part{Family: family, Table: table, Kind: "rule", Name: chain}.Delete(r.handle))
		}
	}
	return reqs, nil
}
