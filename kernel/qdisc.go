package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Handle identifies a qdisc or class: major:minor, tc(8).
type Handle uint32

// The handles of Fairlead's qdiscs and classes.
const (
	RootHandle    Handle = 0x00010000 // 1:, the root qdisc of a link
	IngressHandle Handle = 0xffff0000 // ffff:
	ShapedClass   Handle = 0x00010001 // 1:1

	atRoot    Handle = 0xffffffff // parents: linux/pkt_sched.h
	atIngress Handle = 0xfffffff1
)

func (h Handle) String() string {
	s := strconv.FormatUint(uint64(h>>16), 16) + ":"
	if minor := h & 0xffff; minor != 0 {
		s += strconv.FormatUint(uint64(minor), 16)
	}
	return s
}

// Qdisc is a queueing discipline. "tbf" shapes everything that leaves the link. "htb" shapes what its filters, or its
// default, send to ShapedClass. "ingress" holds the filters of incoming packets. It goes away with its link. Source:
// tc-tbf(8), tc-htb(8).
type Qdisc struct {
	base
	In      Side   `json:",omitzero"`
	Link    string `json:",omitzero"`
	Type    string `json:",omitzero"`
	Rate    uint64 `json:",omitzero"` // bytes per second
	Burst   uint32 `json:",omitzero"` // bytes
	Limit   uint32 `json:",omitzero"` // tbf: most bytes that may wait
	Default bool   `json:",omitzero"` // htb: shape what no filter matches
}

func (q *Qdisc) kind() string { return "qdisc" }
func (q *Qdisc) Side() Side   { return q.In }
func (q *Qdisc) Shared() bool { return false }
func (q *Qdisc) on() linkName { return linkName{q.In, q.Link} }

func (q *Qdisc) String() string {
	switch q.Type {
	case "ingress":
		return "tc qdisc add dev " + q.Link + " ingress"
	case "htb":
		def := ""
		if q.Default {
			def = " default 1"
		}
		return fmt.Sprintf("tc qdisc add dev %s root handle 1: htb%s; class add dev %s classid 1:1 htb rate %dbit burst %d", q.Link, def, q.Link, 8*q.Rate, q.Burst)
	}
	return fmt.Sprintf("tc qdisc add dev %s root handle 1: tbf rate %dbit burst %d limit %d", q.Link, 8*q.Rate, q.Burst, q.Limit)
}

const ( // linux/pkt_sched.h, linux/rtnetlink.h
	tcaTBFParms, tcaTBFRate64, tcaTBFBurst                = 1, 4, 6
	tcaHTBParms, tcaHTBInit, tcaHTBRate64, tcaHTBCeil64   = 1, 2, 6, 7
	htbVersion, htbRateToQuantum, htbQuantum, tcLinkLayer = 3, 10, 60000, 1
	tickNanoseconds                                       = 64
)

const sizeofTcmsg = 20

// tcmsg starts the body of a message: struct tcmsg, rtnetlink(7).
func tcmsg(index int, parent, handle Handle, info uint32) netlink.Buffer {
	b := make(netlink.Buffer, 4, 256)
	b = binary.NativeEndian.AppendUint32(b, uint32(index))
	b = binary.NativeEndian.AppendUint32(b, uint32(handle))
	b = binary.NativeEndian.AppendUint32(b, uint32(parent))
	return binary.NativeEndian.AppendUint32(b, info)
}

// ratespec returns struct tc_ratespec. A rate above 32 bits is in an attribute of its own.
func ratespec(rate uint64) []byte {
	b := make([]byte, 8, 12)
	b[1] = tcLinkLayer // Ethernet: the kernel then needs no rate table
	return binary.NativeEndian.AppendUint32(b, uint32(min(rate, 1<<32-1)))
}

func (q *Qdisc) ensure(e *Engine) error {
	i, err := e.LinkIndex(q.In, q.Link)
	if err != nil {
		return err
	}
	parent, handle := atRoot, RootHandle
	if q.Type == "ingress" {
		parent, handle = atIngress, IngressHandle
	}
	b := tcmsg(i, parent, handle, 0)
	b.String(unix.TCA_KIND, q.Type)
	switch q.Type {
	case "tbf":
		b.Nest(unix.TCA_OPTIONS, q.tbf)
	case "htb":
		b.Nest(unix.TCA_OPTIONS, q.htb)
	}
	err = e.send(q, q.In, netlink.Request{Type: unix.RTM_NEWQDISC, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, Body: b}, func(r netlink.Response) error {
		return q.created(e, r)
	})
	if err != nil || q.Type != "htb" {
		return err
	}
	return e.send(q, q.In, netlink.Request{Type: unix.RTM_NEWTCLASS, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, Body: q.class(i)}, nil)
}

func (q *Qdisc) created(e *Engine, r netlink.Response) error {
	if netlink.IsAbsent(r.Err) {
		return fmt.Errorf("the kernel lacks the qdisc %s (module sch_%s): %w", q.Type, q.Type, r.Err)
	}
	if r.Err == nil {
		e.noteCreated(q)
	}
	return r.Err
}

// tbf writes struct tc_tbf_qopt. The burst in bytes overrides its burst in time.
func (q *Qdisc) tbf(n *netlink.Buffer) {
	p := append(ratespec(q.Rate), make([]byte, 12)...) // no peak rate
	p = binary.NativeEndian.AppendUint32(p, q.Limit)
	p = append(p, make([]byte, 8)...)
	n.Bytes(tcaTBFParms, p)
	n.Uint64(tcaTBFRate64, q.Rate)
	n.Uint32(tcaTBFBurst, q.Burst)
}

// htb writes struct tc_htb_glob.
func (q *Qdisc) htb(n *netlink.Buffer) {
	var p []byte
	for _, v := range []uint32{htbVersion, htbRateToQuantum, q.defaultClass(), 0, 0} {
		p = binary.NativeEndian.AppendUint32(p, v)
	}
	n.Bytes(tcaHTBInit, p)
}

// class writes struct tc_htb_opt. Its burst is the time that sending the bytes takes.
func (q *Qdisc) class(index int) netlink.Buffer {
	b := tcmsg(index, RootHandle, ShapedClass, 0)
	b.String(unix.TCA_KIND, "htb")
	ticks := uint32(min(q.ticks(), 1<<32-1))
	b.Nest(unix.TCA_OPTIONS, func(n *netlink.Buffer) {
		p := append(ratespec(q.Rate), ratespec(q.Rate)...)
		for _, v := range []uint32{ticks, ticks, htbQuantum, 0, 0} {
			p = binary.NativeEndian.AppendUint32(p, v)
		}
		n.Bytes(tcaHTBParms, p)
		n.Uint64(tcaHTBRate64, q.Rate)
		n.Uint64(tcaHTBCeil64, q.Rate)
	})
	return b
}

func (q *Qdisc) diff(e *Engine) ([]string, error) {
	i, err := e.LinkIndex(q.In, q.Link)
	if err != nil {
		return nil, err
	}
	options, err := q.get(e, unix.RTM_GETQDISC, tcmsg(i, q.parent(), 0, 0))
	if err != nil {
		return nil, err
	}
	switch q.Type {
	case "tbf":
		return q.tbfDiffers(options), nil
	case "htb":
		d := unequal("default", netlink.Uint32(attrAt(options, tcaHTBInit, 8)), q.defaultClass())
		class, err := q.get(e, unix.RTM_GETTCLASS, tcmsg(i, 0, ShapedClass, 0))
		if errors.Is(err, os.ErrNotExist) {
			return append(d, "its class "+ShapedClass.String()+" is missing"), nil
		}
		return append(d, q.classDiffers(class)...), err
	}
	return nil, nil
}

// get returns the options of the qdisc or of its class. A dump would list the qdiscs of all links, and it misses one
// without a warning when another link goes away meanwhile. With NLM_F_ECHO the kernel sends the qdisc to the socket that
// asked (qdisc_get_notify).
func (q *Qdisc) get(e *Engine, typ uint16, body netlink.Buffer) ([]byte, error) {
	r, err := e.Request(q.In, netlink.Request{Type: typ, Flags: unix.NLM_F_ECHO, Body: body})
	if errors.Is(err, unix.EINVAL) || netlink.IsAbsent(err) {
		return nil, os.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	for _, m := range r.Messages {
		if len(m) >= sizeofTcmsg && netlink.Uint32(m[4:]) == netlink.Uint32(body[4:]) && netlink.Text(netlink.Attr(m[sizeofTcmsg:], unix.TCA_KIND)) == q.Type {
			return netlink.Attr(m[sizeofTcmsg:], unix.TCA_OPTIONS), nil
		}
	}
	return nil, os.ErrNotExist
}

// parent returns the place of the qdisc on its link.
func (q *Qdisc) parent() Handle {
	if q.Type == "ingress" {
		return atIngress
	}
	return atRoot
}

// Offsets in struct tc_tbf_qopt and struct tc_htb_opt, linux/pkt_sched.h.
const (
	rateAt, tbfLimitAt, tbfBufferAt         = 8, 24, 28
	htbCeilAt, htbBufferAt, htbCeilBufferAt = 20, 24, 28
)

func (q *Qdisc) tbfDiffers(options []byte) []string {
	d := q.rateDiffers("rate", options, tcaTBFRate64, tcaTBFParms, rateAt)
	d = append(d, unequal("limit", netlink.Uint32(attrAt(options, tcaTBFParms, tbfLimitAt)), q.Limit)...)
	return append(d, q.burstDiffers("burst", netlink.Uint32(attrAt(options, tcaTBFParms, tbfBufferAt)), q.ticks())...)
}

func (q *Qdisc) classDiffers(options []byte) []string {
	d := q.rateDiffers("rate", options, tcaHTBRate64, tcaHTBParms, rateAt)
	d = append(d, q.rateDiffers("ceil", options, tcaHTBCeil64, tcaHTBParms, htbCeilAt)...)
	most := min(q.ticks(), 1<<32-1)
	d = append(d, q.burstDiffers("burst", netlink.Uint32(attrAt(options, tcaHTBParms, htbBufferAt)), most)...)
	return append(d, q.burstDiffers("cburst", netlink.Uint32(attrAt(options, tcaHTBParms, htbCeilBufferAt)), most)...)
}

func (q *Qdisc) rateDiffers(what string, options []byte, rate64, parms uint16, at int) []string {
	rate := netlink.Uint64(netlink.Attr(options, rate64))
	if rate == 0 {
		rate = uint64(netlink.Uint32(attrAt(options, parms, at)))
	}
	if rate == q.Rate {
		return nil
	}
	return []string{fmt.Sprintf("%s is %d bit/s, want %d", what, 8*rate, 8*q.Rate)}
}

// burstDiffers compares the burst, which the kernel returns as the time that sending it takes, modulo 32 bits. Its
// arithmetic is exact to a thousandth.
func (q *Qdisc) burstDiffers(what string, have uint32, want uint64) []string {
	far := int64(int32(have - uint32(want)))
	if tolerance := int64(min(want/1000, 1<<31-2)) + 1; far >= -tolerance && far <= tolerance {
		return nil
	}
	bytes := uint64(have) * tickNanoseconds * q.Rate / 1e9
	return []string{fmt.Sprintf("%s is %d bytes, want %d", what, bytes, q.Burst)}
}

// ticks returns the time that sending the burst takes, in the kernel's unit.
func (q *Qdisc) ticks() uint64 { return uint64(q.Burst) * 1e9 / max(q.Rate, 1) / tickNanoseconds }

// attrAt returns what follows an offset in an attribute, or nil.
func attrAt(p []byte, typ uint16, at int) []byte {
	v := netlink.Attr(p, typ)
	return v[min(at, len(v)):]
}

// defaultClass returns the minor number of the class for packets that no filter matches, or 0.
func (q *Qdisc) defaultClass() uint32 {
	if q.Default {
		return uint32(ShapedClass & 0xffff)
	}
	return 0
}

// restore replaces whatever qdisc is in place. Its filters are restored after it.
func (q *Qdisc) restore(e *Engine) error {
	if err := q.remove(e); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return q.ensure(e)
}

func (q *Qdisc) remove(e *Engine) error {
	i, err := e.LinkIndex(q.In, q.Link)
	if err != nil {
		return err
	}
	_, err = e.Request(q.In, netlink.Request{Type: unix.RTM_DELQDISC, Flags: 0, Body: tcmsg(i, q.parent(), 0, 0)})
	if errors.Is(err, unix.EINVAL) { // no such qdisc
		return os.ErrNotExist
	}
	return err
}
