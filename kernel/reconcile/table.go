package reconcile

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/nft"
)

// nftaTableUserdata is NFTA_TABLE_USERDATA of linux/netfilter/nf_tables.h, kernel 5.9.
const nftaTableUserdata = 6

// tableHash returns a hash of a table's objects, in order.
func tableHash(list []kernel.Object) string {
	if len(list) == 0 {
		return ""
	}
	words := make([]string, len(list))
	for i, o := range list {
		words[i] = o.String()
	}
	return kernel.Hash(words...)[:32]
}

// updateTable writes the owner's nftables table, whole and in one transaction, if it differs. Without desired objects
// the table is deleted.
func (r *Reconciler) updateTable(rep *Report, list []kernel.Object) {
	want := tableHash(list)
	if r.nft == want || r.NoRemove && want == "" {
		return
	}
	if err := r.rewrite(list, want); err != nil {
		r.known = false
		rep.Errors = append(rep.Errors, fmt.Errorf("write table inet %s: %w", r.owner.Table, err))
		return
	}
	r.nft = want
	rep.Applied++
	rep.note(fmt.Sprintf("nft table inet %s (%d lines)", r.owner.Table, len(list)))
}

// RemoveTable deletes the owner's nftables table, and nothing else.
func (r *Reconciler) RemoveTable() *Report {
	rep := &Report{}
	r.known = false
	if err := r.rewrite(nil, ""); err != nil {
		rep.Errors = append(rep.Errors, fmt.Errorf("delete table inet %s: %w", r.owner.Table, err))
		return rep
	}
	rep.removed("nft table inet " + r.owner.Table)
	return rep
}

func (r *Reconciler) rewrite(list []kernel.Object, sum string) error {
	c, err := r.e.Netfilter()
	if err != nil {
		return err
	}
	table := nft.Message("inet")
	table.String(unix.NFTA_TABLE_NAME, r.owner.Table)
	marked := slices.Clone(table)
	marked.Bytes(nftaTableUserdata, nft.Comment(kernel.TagPrefix+sum))
	add := netlink.Request{Type: nft.Subsystem | unix.NFT_MSG_NEWTABLE, Flags: unix.NLM_F_CREATE, Body: table}
	// Deleting a missing table is an error, so add it first.
	b := &tableBatch{reqs: []netlink.Request{add, {Type: nft.Subsystem | unix.NFT_MSG_DELTABLE, Flags: 0, Body: table}}, objects: []kernel.Object{nil, nil}}
	if len(list) > 0 {
		b.reqs = append(b.reqs, netlink.Request{Type: add.Type, Flags: add.Flags, Body: marked})
		b.objects = append(b.objects, nil)
	}
	for _, o := range list {
		switch o := o.(type) {
		case *kernel.NFT:
			if o.Kind == "table" {
				continue
			}
			if err = b.part(o); err == nil {
				b.addrs(o)
			}
		case *kernel.Element:
			err = b.element(o)
		}
		if err != nil {
			return kernel.WrapObject(o, err)
		}
	}
	resp, err := c.Transact(b.reqs, 0)
	for i, x := range resp {
		if x.Err != nil && b.objects[i] != nil {
			return kernel.WrapObject(b.objects[i], x.Err)
		}
		err = errors.Join(err, x.Err)
	}
	return err
}

// tableBatch is a transaction with the object of each request.
type tableBatch struct {
	reqs    []netlink.Request
	objects []kernel.Object
}

func (b *tableBatch) add(o kernel.Object, r netlink.Request, err error) error {
	b.reqs, b.objects = append(b.reqs, r), append(b.objects, o)
	return err
}

func (b *tableBatch) part(o *kernel.NFT) error {
	r, err := o.AddRequest()
	return b.add(o, r, err)
}

func (b *tableBatch) element(o *kernel.Element) error {
	r, err := o.Wire().Add()
	return b.add(o, r, err)
}

// addrs fills a set with a thousand addresses per message: an attribute holds at most 64 KiB.
func (b *tableBatch) addrs(n *kernel.NFT) {
	const each = 1000
	for some := range slices.Chunk(n.Addrs, each) {
		body := nft.SetMessage(n.Family, n.Table, n.Name)
		body.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(b *netlink.Buffer) {
			for _, a := range some {
				b.Nest(unix.NFTA_LIST_ELEM, func(b *netlink.Buffer) {
					b.Nest(unix.NFTA_SET_ELEM_KEY, func(b *netlink.Buffer) { b.Addr(unix.NFTA_DATA_VALUE, a) })
				})
			}
		})
		b.reqs = append(b.reqs, netlink.Request{Type: nft.Subsystem | unix.NFT_MSG_NEWSETELEM, Flags: unix.NLM_F_CREATE, Body: body})
		b.objects = append(b.objects, n)
	}
}

// readTable sets r.nft to the hash in the table's comment, if the table still has the chains, sets, rules and elements that
// were written with it.
func (r *Reconciler) readTable(list []kernel.Object) error {
	r.nft = "?"
	body := nft.Message("inet")
	body.String(unix.NFTA_TABLE_NAME, r.owner.Table)
	resp, err := r.e.ReadNFT(netlink.Request{Type: nft.Subsystem | unix.NFT_MSG_GETTABLE, Body: body})
	if errors.Is(err, os.ErrNotExist) || len(list) == 0 && errors.Is(err, unix.EOPNOTSUPP) {
		r.nft = ""
		return nil
	}
	if err != nil {
		return fmt.Errorf("read table inet %s: %w", r.owner.Table, err)
	}
	if len(resp.Messages) == 0 || len(resp.Messages[0]) < 4 {
		return nil
	}
	if nft.ParseComment(netlink.Attr(resp.Messages[0][4:], nftaTableUserdata)) != kernel.TagPrefix+tableHash(list) {
		return nil
	}
	table := nft.Part{Family: "inet", Table: r.owner.Table, Kind: "table"}
	if len(table.Differs(resp.Messages[0])) > 0 { // it is dormant
		return nil
	}
	whole, err := r.tableMatches(list)
	if err == nil && whole {
		r.nft = tableHash(list)
	}
	return err
}

// tableMatches reports whether the table has the chains and sets of the list, with their hooks, policies and types, and
// exactly its rules and elements.
func (r *Reconciler) tableMatches(list []kernel.Object) (bool, error) {
	want := map[string][]string{} // tags of rules by chain; keys of elements by set
	sets := map[string]kernel.Element{}
	for _, o := range list {
		switch o := o.(type) {
		case *kernel.NFT:
			if o.Kind == "chain" || o.Kind == "set" || o.Kind == "map" {
				if d, err := r.e.CompareOne(o); err != nil || len(d.What) > 0 {
					return false, err
				}
			}
			if o.Kind == "rule" {
				want["chain "+o.Name] = append(want["chain "+o.Name], o.Tag())
			}
			for _, a := range o.Addrs {
				want["set "+o.Name] = append(want["set "+o.Name], a.String())
				sets[o.Name] = kernel.Element{Family: o.Family, Table: o.Table, Set: o.Name, Type: o.Text}
			}
		case *kernel.Element:
			want["set "+o.Set] = append(want["set "+o.Set], o.Key)
			sets[o.Set] = kernel.Element{Family: o.Family, Table: o.Table, Set: o.Set, Type: o.Type}
		}
	}
	rules, err := r.e.NFTRules("inet", r.owner.Table, "")
	if err != nil {
		return false, err
	}
	have := map[string][]string{}
	for _, x := range rules {
		have["chain "+x.Chain] = append(have["chain "+x.Chain], x.Comment)
	}
	for name, s := range sets {
		list, err := r.e.NFTElements(s)
		if err != nil {
			return false, err
		}
		for _, x := range list {
			have["set "+name] = append(have["set "+name], x.Key)
		}
		slices.Sort(have["set "+name])
		slices.Sort(want["set "+name])
	}
	if len(have) != len(want) {
		return false, nil
	}
	for name, list := range want {
		if !slices.Equal(have[name], list) {
			return false, nil
		}
	}
	return true, nil
}
