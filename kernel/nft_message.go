package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// add is the message that makes a part of a ruleset; one that exists is fine,
// but for rules, which the kernel would add again.
func (n *NFT) add() (netlink.Request, error) {
	b := nfgen(n.Family)
	b.String(unix.NFTA_TABLE_NAME, n.Table) // attribute 1 of every message
	r := netlink.Request{Flags: unix.NLM_F_CREATE | unix.NLM_F_ACK}
	var err error
	switch n.Kind {
	case "table":
		r.Type = unix.NFT_MSG_NEWTABLE
	case "chain":
		r.Type = unix.NFT_MSG_NEWCHAIN
		b.String(unix.NFTA_CHAIN_NAME, n.Name)
		err = n.hook(&b)
	case "set", "map":
		r.Type = unix.NFT_MSG_NEWSET
		err = n.set(&b)
	case "rule":
		r.Type = unix.NFT_MSG_NEWRULE
		r.Flags |= unix.NLM_F_APPEND
		err = n.rule(&b)
	default:
		err = fmt.Errorf("no such part of a ruleset: %q", n.Kind)
	}
	r.Type |= nftSubsystem
	r.Body = b
	return r, err
}

func (n *NFT) rule(b *netlink.Buffer) error {
	exprs, err := compileRule(nftFamily(n.Family), n.Text)
	if err != nil {
		return err
	}
	b.String(unix.NFTA_RULE_CHAIN, n.Name)
	b.Bytes(unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, exprs)
	b.Bytes(unix.NFTA_RULE_USERDATA, commentTLV(n.tag()))
	return nil
}

func (n *NFT) set(b *netlink.Buffer) error {
	t, err := parseSetType(n.Text)
	if err != nil {
		return err
	}
	var flags uint32
	if n.Kind == "map" {
		flags |= unix.NFT_SET_MAP
	}
	if len(t.key) > 1 {
		flags |= nftSetConcat
	}
	b.String(unix.NFTA_SET_NAME, n.Name)
	b.Uint32BE(unix.NFTA_SET_FLAGS, flags)
	b.Uint32BE(unix.NFTA_SET_KEY_TYPE, t.key.id())
	b.Uint32BE(unix.NFTA_SET_KEY_LEN, uint32(t.key.size()))
	if n.Kind == "map" {
		b.Uint32BE(unix.NFTA_SET_DATA_TYPE, t.data.id())
		b.Uint32BE(unix.NFTA_SET_DATA_LEN, uint32(t.data.size()))
	}
	if len(t.key) > 1 {
		b.Nest(unix.NFTA_SET_DESC, func(b *netlink.Buffer) {
			b.Nest(nftaSetDescConcat, func(b *netlink.Buffer) {
				for _, p := range t.key {
					b.Nest(unix.NFTA_LIST_ELEM, func(b *netlink.Buffer) { b.Uint32BE(1, uint32(p.size)) }) // NFTA_SET_FIELD_LEN
				}
			})
		})
	}
	switch {
	case t.key.inHostOrder():
		b.Bytes(unix.NFTA_SET_USERDATA, inHostOrder())
	case n.Text == targetType:
		b.Bytes(unix.NFTA_SET_USERDATA, typeofTarget())
	}
	b.Uint32BE(unix.NFTA_SET_ID, uint32(len(n.Name))) // any number: sets are named here by name
	return nil
}

// inHostOrder tells nft(8), for which it is, to print keys as they are: type 0
// (NFTNL_UDATA_SET_KEYBYTEORDER), four bytes, BYTEORDER_HOST_ENDIAN.
func inHostOrder() []byte { return binary.NativeEndian.AppendUint32([]byte{0, 4}, 1) }

// typeofTarget tells nft(8) that a set was declared as "typeof iifname . @nh,384,128": the
// type of the latter has no name, and without this the list of the ruleset is an error to it.
// Each part: type, size, value; a nested part counts from 0.
func typeofTarget() []byte {
	u32 := func(typ byte, n uint32) []byte {
		return append([]byte{typ, 4}, binary.NativeEndian.AppendUint32(nil, n)...)
	}
	nest := func(typ byte, parts ...[]byte) []byte {
		p := bytes.Join(parts, nil)
		return append([]byte{typ, byte(len(p))}, p...)
	}
	const keyTypeof, exprPayload, exprMeta, exprConcat = 3, 7, 9, 13 // NFTNL_UDATA_SET_KEY_TYPEOF, nft's enum expr_types
	iifname := nest(0, u32(0, exprMeta), nest(1, u32(0, unix.NFT_META_IIFNAME)))
	target := nest(1, u32(0, exprPayload), nest(1, u32(0, 0), u32(1, 0), u32(2, unix.NFT_PAYLOAD_NETWORK_HEADER), u32(3, 384), u32(4, 128)))
	return append(u32(0, 0), nest(keyTypeof, u32(0, exprConcat), nest(1, iifname, target))...)
}

const ( // linux/netfilter/nf_tables.h
	nftSetConcat      = 0x80
	nftaSetDescConcat = 2
)

// hook reads "type nat hook postrouting priority 105; policy accept".
func (n *NFT) hook(b *netlink.Buffer) error {
	if n.Text == "" {
		return nil
	}
	w := strings.Fields(strings.ReplaceAll(n.Text, ";", " "))
	if len(w) < 6 || w[0] != "type" || w[2] != "hook" || w[4] != "priority" {
		return fmt.Errorf("chain %q: want type, hook and priority", n.Text)
	}
	num, err := hookNumber(n.Family, w[3])
	if err != nil {
		return err
	}
	prio, err := strconv.ParseInt(w[5], 10, 32)
	if err != nil {
		return fmt.Errorf("chain %q: %w", n.Text, err)
	}
	b.Nest(unix.NFTA_CHAIN_HOOK, func(b *netlink.Buffer) {
		b.Uint32BE(unix.NFTA_HOOK_HOOKNUM, num)
		b.Uint32BE(unix.NFTA_HOOK_PRIORITY, uint32(int32(prio)))
	})
	b.String(unix.NFTA_CHAIN_TYPE, w[1])
	if len(w) == 8 && w[6] == "policy" {
		policy := uint32(nfAccept)
		if w[7] == "drop" {
			policy = nfDrop
		}
		b.Uint32BE(unix.NFTA_CHAIN_POLICY, policy)
	}
	return nil
}

// hookNames are in the order of their numbers.
func hookNames(family string) []string {
	if family == "arp" { // linux/netfilter_arp.h
		return []string{"input", "output", "forward"}
	}
	return []string{"prerouting", "input", "forward", "output", "postrouting"}
}

func hookNumber(family, name string) (uint32, error) {
	for i, h := range hookNames(family) {
		if h == name {
			return uint32(i), nil
		}
	}
	return 0, fmt.Errorf("unknown hook %q", name)
}

// drop is the message that deletes it; a rule is named by its handle.
func (n *NFT) drop(handle []byte) netlink.Request {
	b := nfgen(n.Family)
	b.String(unix.NFTA_TABLE_NAME, n.Table)
	r := netlink.Request{Flags: unix.NLM_F_ACK}
	switch n.Kind {
	case "chain":
		r.Type = unix.NFT_MSG_DELCHAIN
		b.String(unix.NFTA_CHAIN_NAME, n.Name)
	case "set", "map":
		r.Type = unix.NFT_MSG_DELSET
		b.String(unix.NFTA_SET_NAME, n.Name)
	case "rule":
		r.Type = unix.NFT_MSG_DELRULE
		b.String(unix.NFTA_RULE_CHAIN, n.Name)
		b.Bytes(unix.NFTA_RULE_HANDLE, handle)
	}
	r.Type |= nftSubsystem
	r.Body = b
	return r
}
