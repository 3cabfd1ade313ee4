package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// nftaTableUserdata is linux/netfilter/nf_tables.h, kernel 5.9.
const nftaTableUserdata = 6

// nftSum stands for all of what a table holds, in order.
func nftSum(list []Object) string {
	if len(list) == 0 {
		return ""
	}
	words := make([]string, len(list))
	for i, o := range list {
		words[i] = o.String()
	}
	return hash(words...)[:32]
}

// tables writes the owner's nftables table, whole and in one transaction, if it
// is not as it should be. Without anything wanted there is none.
func (r *Reconciler) tables(rep *Report, list []Object) {
	want := nftSum(list)
	if r.nft == want || r.Spare && want == "" {
		return
	}
	if err := r.rewrite(list, want); err != nil {
		r.known = false
		rep.Errors = append(rep.Errors, fmt.Errorf("write table inet %s: %w", r.owner.Table, err))
		return
	}
	r.nft = want
	rep.Made++
	rep.say(fmt.Sprintf("nft table inet %s (%d lines)", r.owner.Table, len(list)))
}

func (r *Reconciler) rewrite(list []Object, sum string) error {
	c, err := r.e.netfilter()
	if err != nil {
		return err
	}
	table := nfgen("inet")
	table.str(unix.NFTA_TABLE_NAME, r.owner.Table)
	marked := slices.Clone(table)
	marked.bytes(nftaTableUserdata, commentTLV(markPrefix+sum))
	add := request{nftSubsystem | unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, table}
	// Added first, so that there is something to delete.
	b := &transaction{reqs: []request{add, {nftSubsystem | unix.NFT_MSG_DELTABLE, 0, table}}, objects: []Object{nil, nil}}
	if len(list) > 0 {
		b.reqs = append(b.reqs, request{add.typ, add.flags, marked})
		b.objects = append(b.objects, nil)
	}
	for _, o := range list {
		switch o := o.(type) {
		case *NFT:
			if o.What == "table" {
				continue
			}
			if err = b.add(o); err == nil {
				b.addrs(o)
			}
		case *Element:
			err = b.element(o)
		}
		if err != nil {
			return about(o, err)
		}
	}
	resp, err := c.transact(b.reqs, 0)
	for i, x := range resp {
		if x.err != nil && b.objects[i] != nil {
			return about(b.objects[i], x.err)
		}
		err = errors.Join(err, x.err)
	}
	return err
}

// addrs fills a set, some hundred addresses a message: an attribute has 64 KiB at most.
func (b *transaction) addrs(n *NFT) {
	const each = 1000
	for some := range slices.Chunk(n.Addrs, each) {
		body := nfgen(n.Family)
		body.str(unix.NFTA_SET_ELEM_LIST_TABLE, n.Table)
		body.str(unix.NFTA_SET_ELEM_LIST_SET, n.Name)
		body.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(b *buf) {
			for _, a := range some {
				b.nest(unix.NFTA_LIST_ELEM, func(b *buf) {
					b.nest(unix.NFTA_SET_ELEM_KEY, func(b *buf) { b.addr(unix.NFTA_DATA_VALUE, a) })
				})
			}
		})
		b.reqs = append(b.reqs, request{nftSubsystem | unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, body})
		b.objects = append(b.objects, n)
	}
}

// lookTable finds what the table holds: what it says of itself, if the rules and
// elements that are there are those that are wanted, as hands may have changed them.
func (r *Reconciler) lookTable(list []Object) error {
	r.nft = "?"
	body := nfgen("inet")
	body.str(unix.NFTA_TABLE_NAME, r.owner.Table)
	resp, err := r.e.askNFT(unix.NFT_MSG_GETTABLE, body)
	if errors.Is(err, os.ErrNotExist) || len(list) == 0 && errors.Is(err, unix.EOPNOTSUPP) {
		r.nft = ""
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at table inet %s: %w", r.owner.Table, err)
	}
	if len(resp.msgs) == 0 || len(resp.msgs[0]) < 4 {
		return nil
	}
	if parseComment(attr(resp.msgs[0][4:], nftaTableUserdata)) != markPrefix+nftSum(list) {
		return nil
	}
	whole, err := r.holds(list)
	if err == nil && whole {
		r.nft = nftSum(list)
	}
	return err
}

// holds tells whether the table's rules and elements are those of the list.
func (r *Reconciler) holds(list []Object) (bool, error) {
	want := map[string][]string{} // marks of rules by chain; keys of elements by set
	sets := map[string]Element{}
	for _, o := range list {
		switch o := o.(type) {
		case *NFT:
			if o.What == "rule" {
				want["chain "+o.Name] = append(want["chain "+o.Name], o.mark())
			}
			for _, a := range o.Addrs {
				want["set "+o.Name] = append(want["set "+o.Name], a.String())
				sets[o.Name] = Element{Family: o.Family, Table: o.Table, Set: o.Name, Type: o.Text}
			}
		case *Element:
			want["set "+o.Set] = append(want["set "+o.Set], o.Key)
			sets[o.Set] = Element{Family: o.Family, Table: o.Table, Set: o.Set, Type: o.Type}
		}
	}
	rules, err := r.e.rules("inet", r.owner.Table, "")
	if err != nil {
		return false, err
	}
	have := map[string][]string{}
	for _, x := range rules {
		have["chain "+x.chain] = append(have["chain "+x.chain], x.comment)
	}
	for name, s := range sets {
		list, err := r.e.elements(s)
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
