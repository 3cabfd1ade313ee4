package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Rule is a policy routing rule: which packets use which table. Source: ip-rule(8).
type Rule struct {
	base
	In       Side         `json:",omitzero"`
	Priority int          `json:",omitzero"` // 0: the kernel's choice, before the existing rules
	From     netip.Prefix `json:",omitzero"` // zero: all
	To       netip.Prefix `json:",omitzero"`
	Table    int          `json:",omitzero"`
	Proto    byte         `json:",omitzero"` // protocol number; 0: Protocol
}

func (r *Rule) kind() string { return "rule" }
func (r *Rule) Side() Side   { return r.In }
func (r *Rule) Shared() bool { return false }

func (r *Rule) family() byte {
	if r.From.Addr().Is6() || r.To.Addr().Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

func (r *Rule) String() string {
	s := "ip "
	if r.family() == unix.AF_INET6 {
		s += "-6 "
	}
	s += "rule add"
	if r.Priority != 0 {
		s += fmt.Sprintf(" priority %d", r.Priority)
	}
	if r.From.IsValid() {
		s += " from " + r.From.String()
	}
	if r.To.IsValid() {
		s += " to " + r.To.String()
	}
	return s + fmt.Sprintf(" table %d", r.Table)
}

// Message returns the body of a message about the rule: struct fib_rule_hdr.
func (r *Rule) Message() netlink.Buffer {
	// struct fib_rule_hdr has the layout of rtmsg, with the action as its type.
	b := RouteMessage(r.family(), 0, r.Table, 0, 0)
	b[5], b[7] = 0, unix.FR_ACT_TO_TBL
	if r.From.IsValid() {
		b[2] = byte(r.From.Bits())
		b.Addr(unix.FRA_SRC, r.From.Masked().Addr())
	}
	if r.To.IsValid() {
		b[1] = byte(r.To.Bits())
		b.Addr(unix.FRA_DST, r.To.Masked().Addr())
	}
	b.Uint32(unix.FRA_TABLE, uint32(r.Table))
	if r.Priority != 0 {
		b.Uint32(unix.FRA_PRIORITY, uint32(r.Priority))
	}
	b.Uint8(unix.FRA_PROTOCOL, cmp.Or(r.Proto, Protocol))
	return b
}

func (r *Rule) ensure(e *Engine) error {
	return e.send(r, r.In, netlink.Request{Type: unix.RTM_NEWRULE, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, Body: r.Message()}, func(resp netlink.Response) error {
		if resp.Err == nil {
			e.noteCreated(r)
		}
		return resp.Err
	})
}

func (r *Rule) diff(e *Engine) ([]string, error) {
	have, err := readOnce(e, listKey{"rules", r.In, r.family(), 0, 0}, func() ([]RuleInfo, error) { return e.Rules(r.In, r.family()) })
	if err != nil {
		return nil, err
	}
	for _, h := range have {
		if h.Table == r.Table && (r.Priority == 0 || h.Priority == r.Priority) && h.From == r.From.Masked() && h.To == r.To.Masked() &&
			h.Protocol == cmp.Or(r.Proto, Protocol) && !h.Other {
			return nil, nil
		}
	}
	return []string{"is missing"}, nil
}

// RuleInfo is a rule as the kernel reports it.
type RuleInfo struct {
	Priority, Table int
	From, To        netip.Prefix // zero: all
	Protocol        byte
	Other           bool // it also depends on something else, or does something else with the packets
}

// Rules lists the rules of a family (AF_INET, AF_INET6). A kernel without the family has none.
func (e *Engine) Rules(s Side, fam byte) (out []RuleInfo, err error) {
	b := RouteMessage(fam, 0, 0, 0, 0)
	b[5], b[7] = 0, 0
	msgs, err := e.Dump(s, netlink.Request{Type: unix.RTM_GETRULE, Body: b})
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	for _, m := range msgs {
		if len(m) < unix.SizeofRtMsg {
			continue
		}
		p := m[unix.SizeofRtMsg:]
		r := RuleInfo{Table: int(netlink.Uint32(netlink.Attr(p, unix.FRA_TABLE))), Priority: int(netlink.Uint32(netlink.Attr(p, unix.FRA_PRIORITY))), Protocol: netlink.Uint8(netlink.Attr(p, unix.FRA_PROTOCOL))}
		r.Other = m[7] != unix.FR_ACT_TO_TBL || netlink.Uint32(m[8:])&unix.FIB_RULE_INVERT != 0 || m[3] != 0
		netlink.EachAttr(p, func(typ uint16, _ []byte) { r.Other = r.Other || isSelector(typ) })
		for _, a := range []struct {
			to   *netip.Prefix
			typ  uint16
			bits byte
		}{{&r.From, unix.FRA_SRC, m[2]}, {&r.To, unix.FRA_DST, m[1]}} {
			if ip := netlink.Addr(netlink.Attr(p, a.typ)); ip.IsValid() {
				*a.to = netip.PrefixFrom(ip, int(a.bits))
			}
		}
		out = append(out, r)
	}
	return out, nil
}

// isSelector reports whether an attribute restricts a rule to packets that a Rule does not describe.
func isSelector(typ uint16) bool {
	switch typ {
	case unix.FRA_IIFNAME, unix.FRA_OIFNAME, unix.FRA_FWMARK, unix.FRA_TUN_ID, unix.FRA_L3MDEV, unix.FRA_UID_RANGE,
		unix.FRA_IP_PROTO, unix.FRA_SPORT_RANGE, unix.FRA_DPORT_RANGE:
		return true
	}
	return false
}

func (r *Rule) remove(e *Engine) error {
	_, err := e.Request(r.In, netlink.Request{Type: unix.RTM_DELRULE, Flags: 0, Body: r.Message()})
	return err
}
