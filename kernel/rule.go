package kernel

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Rule is a routing policy rule: who looks into which table. Source: ip-rule(8).
type Rule struct {
	base
	In       Side         `json:",omitzero"`
	Priority int          `json:",omitzero"`
	From     netip.Prefix `json:",omitzero"` // zero: all
	To       netip.Prefix `json:",omitzero"`
	Table    int          `json:",omitzero"`
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
	s += fmt.Sprintf("rule add priority %d", r.Priority)
	if r.From.IsValid() {
		s += " from " + r.From.String()
	}
	if r.To.IsValid() {
		s += " to " + r.To.String()
	}
	return s + fmt.Sprintf(" table %d", r.Table)
}

func (r *Rule) body() buf {
	// struct fib_rule_hdr has the shape of rtmsg: the table, then the action.
	b := rtmsg(r.family(), 0, r.Table, 0, 0)
	b[5], b[7] = 0, unix.FR_ACT_TO_TBL
	if r.From.IsValid() {
		b[2] = byte(r.From.Bits())
		b.addr(unix.FRA_SRC, r.From.Masked().Addr())
	}
	if r.To.IsValid() {
		b[1] = byte(r.To.Bits())
		b.addr(unix.FRA_DST, r.To.Masked().Addr())
	}
	b.u32(unix.FRA_TABLE, uint32(r.Table))
	b.u32(unix.FRA_PRIORITY, uint32(r.Priority))
	b.u8(unix.FRA_PROTOCOL, Protocol)
	return b
}

func (r *Rule) ensure(e *Engine) error {
	return e.send(r, r.In, request{unix.RTM_NEWRULE, unix.NLM_F_CREATE | unix.NLM_F_EXCL, r.body()}, func(resp response) error {
		if resp.err == nil {
			e.made(r)
		}
		return resp.err
	})
}

func (r *Rule) diff(e *Engine) ([]string, error) {
	b := rtmsg(r.family(), 0, 0, 0, 0)
	b[5], b[7] = 0, 0
	msgs, err := e.dump(r.In, request{typ: unix.RTM_GETRULE, body: b})
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	for _, m := range msgs {
		if len(m) >= unix.SizeofRtMsg && r.matches(m) {
			return nil, nil
		}
	}
	return []string{"is missing"}, nil
}

func (r *Rule) matches(m []byte) bool {
	p := m[unix.SizeofRtMsg:]
	same := func(want netip.Prefix, typ uint16, bits byte) bool {
		have := address(attr(p, typ))
		return want.IsValid() == have.IsValid() &&
			(!want.IsValid() || want.Masked() == netip.PrefixFrom(have, int(bits)))
	}
	return int(num32(attr(p, unix.FRA_TABLE))) == r.Table && int(num32(attr(p, unix.FRA_PRIORITY))) == r.Priority &&
		same(r.From, unix.FRA_SRC, m[2]) && same(r.To, unix.FRA_DST, m[1])
}

func (r *Rule) remove(e *Engine) error {
	_, err := e.now(r.In, request{unix.RTM_DELRULE, 0, r.body()})
	return err
}
