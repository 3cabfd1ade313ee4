package nft

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Part is a table, chain, set, map or rule.
type Part struct {
	Family  string // "ip", "ip6", "inet", "arp" or "bridge"
	Table   string
	Kind    string // "table", "chain", "set", "map" or "rule"
	Name    string // of a rule: its chain
	Text    string // a chain's hook, a set's type, a rule's statements
	Comment string // of a rule

	Interval bool // the keys of a set or map may be ranges
}

// Add returns the request that creates the part. The kernel accepts a part that exists,
// except for a rule, which it would add a second time.
func (p Part) Add() (netlink.Request, error) {
	b := Message(p.Family)
	b.String(unix.NFTA_TABLE_NAME, p.Table) // attribute 1 of every message
	r := netlink.Request{Flags: unix.NLM_F_CREATE | unix.NLM_F_ACK}
	var err error
	switch p.Kind {
	case "table":
		r.Type = unix.NFT_MSG_NEWTABLE
		b.Uint32BE(unix.NFTA_TABLE_FLAGS, 0) // wakes an existing dormant table
	case "chain":
		r.Type = unix.NFT_MSG_NEWCHAIN
		b.String(unix.NFTA_CHAIN_NAME, p.Name)
		err = p.hook(&b)
	case "set", "map":
		r.Type = unix.NFT_MSG_NEWSET
		err = p.set(&b)
	case "rule":
		r.Type = unix.NFT_MSG_NEWRULE
		r.Flags |= unix.NLM_F_APPEND
		err = p.rule(&b)
	default:
		err = fmt.Errorf("nftables has no %q", p.Kind)
	}
	r.Type |= Subsystem
	r.Body = b
	return r, err
}

// Get returns the request that asks for a table, chain, set or map.
func (p Part) Get() netlink.Request {
	b := Message(p.Family)
	b.String(unix.NFTA_TABLE_NAME, p.Table)
	r := netlink.Request{Type: Subsystem | unix.NFT_MSG_GETTABLE}
	switch p.Kind {
	case "chain":
		r.Type = Subsystem | unix.NFT_MSG_GETCHAIN
		b.String(unix.NFTA_CHAIN_NAME, p.Name)
	case "set", "map":
		r.Type = Subsystem | unix.NFT_MSG_GETSET
		b.String(unix.NFTA_SET_NAME, p.Name)
	}
	r.Body = b
	return r
}

// Delete returns the request that deletes the part, a table with all its content. The handle names a rule.
func (p Part) Delete(handle []byte) netlink.Request {
	b := Message(p.Family)
	b.String(unix.NFTA_TABLE_NAME, p.Table)
	r := netlink.Request{Flags: unix.NLM_F_ACK}
	switch p.Kind {
	case "table":
		r.Type = unix.NFT_MSG_DELTABLE
	case "chain":
		r.Type = unix.NFT_MSG_DELCHAIN
		b.String(unix.NFTA_CHAIN_NAME, p.Name)
	case "set", "map":
		r.Type = unix.NFT_MSG_DELSET
		b.String(unix.NFTA_SET_NAME, p.Name)
	case "rule":
		r.Type = unix.NFT_MSG_DELRULE
		b.String(unix.NFTA_RULE_CHAIN, p.Name)
		b.Bytes(unix.NFTA_RULE_HANDLE, handle)
	}
	r.Type |= Subsystem
	r.Body = b
	return r
}

func (p Part) rule(b *netlink.Buffer) error {
	exprs, err := Compile(FamilyNumber(p.Family), p.Text)
	if err != nil {
		return err
	}
	b.String(unix.NFTA_RULE_CHAIN, p.Name)
	b.Bytes(unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, exprs)
	if p.Comment != "" {
		b.Bytes(unix.NFTA_RULE_USERDATA, Comment(p.Comment))
	}
	return nil
}

func (p Part) set(b *netlink.Buffer) error {
	const (
		setDescConcat = 2 // NFTA_SET_DESC_CONCAT
		setFieldLen   = 1 // NFTA_SET_FIELD_LEN
	)
	t, err := ParseSetType(p.Text)
	if err != nil {
		return err
	}
	var flags uint32
	if p.Kind == "map" {
		flags |= unix.NFT_SET_MAP
	}
	if len(t.Key) > 1 {
		flags |= SetFlagConcat
	}
	if p.Interval {
		flags |= unix.NFT_SET_INTERVAL
	}
	b.String(unix.NFTA_SET_NAME, p.Name)
	b.Uint32BE(unix.NFTA_SET_FLAGS, flags)
	b.Uint32BE(unix.NFTA_SET_KEY_TYPE, t.Key.id())
	b.Uint32BE(unix.NFTA_SET_KEY_LEN, uint32(t.Key.size()))
	switch {
	case t.Verdict:
		b.Uint32BE(unix.NFTA_SET_DATA_TYPE, verdictType)
	case p.Kind == "map":
		b.Uint32BE(unix.NFTA_SET_DATA_TYPE, t.Data.id())
		b.Uint32BE(unix.NFTA_SET_DATA_LEN, uint32(t.Data.size()))
	}
	if len(t.Key) > 1 {
		b.Nest(unix.NFTA_SET_DESC, func(b *netlink.Buffer) {
			b.Nest(setDescConcat, func(b *netlink.Buffer) {
				for _, part := range t.Key {
					b.Nest(unix.NFTA_LIST_ELEM, func(b *netlink.Buffer) { b.Uint32BE(setFieldLen, uint32(part.size)) })
				}
			})
		})
	}
	switch {
	case t.Key.hostOrder():
		b.Bytes(unix.NFTA_SET_USERDATA, hostOrderUserdata())
	case IsTypeof(p.Text):
		b.Bytes(unix.NFTA_SET_USERDATA, typeofUserdata(p.Text))
	}
	b.Uint32BE(unix.NFTA_SET_ID, uint32(len(p.Name))) // any number: rules refer to sets by name
	return nil
}

// hostOrderUserdata makes nft(8) print keys in host byte order: type 0
// (NFTNL_UDATA_SET_KEYBYTEORDER), four bytes, BYTEORDER_HOST_ENDIAN.
func hostOrderUserdata() []byte { return binary.NativeEndian.AppendUint32([]byte{0, 4}, 1) }

// typeofUserdata tells nft(8) that a set was declared as "typeof iifname . @nh,384,128" or "typeof ct id". Their types have
// no name, and without this userdata nft(8) cannot list the ruleset, or prints keys in the wrong byte order. Each part is
// type, size, value; a nested part numbers its parts from 0.
func typeofUserdata(setType string) []byte {
	u32 := func(typ byte, n uint32) []byte {
		return append([]byte{typ, 4}, binary.NativeEndian.AppendUint32(nil, n)...)
	}
	nest := func(typ byte, parts ...[]byte) []byte {
		p := bytes.Join(parts, nil)
		return append([]byte{typ, byte(len(p))}, p...)
	}
	// NFTNL_UDATA_SET_KEYBYTEORDER, BYTEORDER_BIG_ENDIAN, NFTNL_UDATA_SET_KEY_TYPEOF, nft's enum expr_types
	const keyByteOrder, bigEndian, keyTypeof, exprPayload, exprMeta, exprCT, exprConcat = 0, 2, 3, 7, 9, 12, 13
	const noDirection = 1<<32 - 1
	if setType == connectionID {
		return append(u32(keyByteOrder, bigEndian), nest(keyTypeof, u32(0, exprCT), nest(1, u32(0, unix.NFT_CT_ID), u32(1, noDirection)))...)
	}
	iifname := nest(0, u32(0, exprMeta), nest(1, u32(0, unix.NFT_META_IIFNAME)))
	target := nest(1, u32(0, exprPayload), nest(1, u32(0, 0), u32(1, 0), u32(2, networkHeader), u32(3, 384), u32(4, 128)))
	return append(u32(keyByteOrder, 0), nest(keyTypeof, u32(0, exprConcat), nest(1, iifname, target))...)
}

// hook reads "type nat hook postrouting priority 105; policy accept". A chain without
// text has no hook.
func (p Part) hook(b *netlink.Buffer) error {
	if p.Text == "" {
		return nil
	}
	w := strings.Fields(strings.ReplaceAll(p.Text, ";", " "))
	if len(w) < 6 || w[0] != "type" || w[2] != "hook" || w[4] != "priority" {
		return fmt.Errorf("chain %q: want type, hook and priority", p.Text)
	}
	num, err := hookNumber(p.Family, w[3])
	if err != nil {
		return err
	}
	prio, err := strconv.ParseInt(w[5], 10, 32)
	if err != nil {
		return fmt.Errorf("chain %q: %w", p.Text, err)
	}
	b.Nest(unix.NFTA_CHAIN_HOOK, func(b *netlink.Buffer) {
		b.Uint32BE(unix.NFTA_HOOK_HOOKNUM, num)
		b.Uint32BE(unix.NFTA_HOOK_PRIORITY, uint32(int32(prio)))
	})
	b.String(unix.NFTA_CHAIN_TYPE, w[1])
	if len(w) == 8 && w[6] == "policy" {
		policy := uint32(acceptCode)
		if w[7] == "drop" {
			policy = dropCode
		}
		b.Uint32BE(unix.NFTA_CHAIN_POLICY, policy)
	}
	return nil
}
