package nftable

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Programmer keeps one table of the kernel equal to a desired table. It knows what it has written, so that it sends only
// what changes. It is not safe for concurrent use.
//
// The kernel answers a netlink message while it receives it. So only the pauses between tries wait, and the context ends
// those, and whatever comes after the current message.
type Programmer struct {
	conn *netlink.Conn
	have *state // what the kernel has; nil: not known
}

// Open returns a programmer for the network namespace of the calling thread.
func Open() (*Programmer, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, make([]byte, netlink.BufferSize))
	return &Programmer{conn: c}, err
}

// Close closes the programmer. The table stays.
func (p *Programmer) Close() { p.conn.Close() }

// syncTries bounds how often Sync reads the table again. From the third try on, it replaces the whole table.
const (
	syncTries    = 6
	replaceAfter = 2
)

// Apply changes the parts of the table that the changes name, in one transaction, with one before it for new sets of
// intervals and one after it for deleted sets. If the kernel's table is not known, or turns out to differ, Apply does what
// Sync does. It then returns what Sync found, the wanted change included.
//
// After an error, what decides about packets is as it was, and the next call of Apply does what Sync does.
func (p *Programmer) Apply(ctx context.Context, want *Table, changes Changes) (found []string, err error) {
	have := p.have
	if p.have = nil; have == nil || have.family != want.Family || have.name != want.Name {
		return p.Sync(ctx, want)
	}
	u, err := have.update(want, changes)
	if err != nil {
		return nil, tableError(want, err)
	}
	if u.plan.replace {
		return p.Sync(ctx, want)
	}
	err = p.commit(ctx, u.plan, u.plan.together())
	if isDrift(err) {
		return p.Sync(ctx, want)
	}
	if err != nil {
		return nil, tableError(want, err)
	}
	have.merge(u)
	p.have = have
	return nil, nil
}

// Sync reads the kernel's table and writes what differs from the desired one. It returns what it found different, as
// text.
//
// What packets do not meet yet is written first, in several transactions if it is large. One transaction then changes
// what decides about packets: until it is committed, the former content is in force. At last, Sync deletes what is not
// used any more.
func (p *Programmer) Sync(ctx context.Context, want *Table) (found []string, err error) {
	desired, err := encode(want)
	if err != nil {
		return nil, tableError(want, err)
	}
	p.have = nil
	for try := range syncTries {
		var r *reading
		if r, err = p.read(ctx, desired); err == nil {
			if found == nil {
				found = r.found
			}
			r.replace = r.replace || try >= replaceAfter
			err = p.repair(ctx, desired, r)
		}
		if err == nil {
			p.have = desired
			return found, nil
		}
		if !isDrift(err) || pause(ctx) != nil {
			break
		}
	}
	return found, tableError(want, err)
}

// Elements returns the elements, values by key, that the kernel has in a set of a desired table. The error is os.ErrNotExist
// if it has no such set.
func (p *Programmer) Elements(t *Table, name string) (map[string]string, error) {
	s, err := encodeSet(t, name, t.Sets[name])
	if err != nil {
		return nil, tableError(t, err)
	}
	msgs, err := s.Dump(p.conn)
	if err != nil {
		return nil, tableError(t, fmt.Errorf("list set %s: %w", name, err))
	}
	values, _ := s.Parse(msgs)
	out := make(map[string]string, len(values))
	for k, v := range values {
		out[s.KeyText(k)] = v
	}
	return out, nil
}

// repair writes what differs.
func (p *Programmer) repair(ctx context.Context, desired *state, r *reading) error {
	if r.replace && r.exists {
		return p.replace(ctx, desired)
	}
	pl := &plan{state: desired}
	if !r.exists || r.dormant {
		pl.newTable()
	}
	pl.changes(r.have)
	if err := p.commit(ctx, pl, pl.divided()); err != nil || !r.copied {
		return err
	}
	return p.deleteCopy(ctx, desired)
}

func tableError(t *Table, err error) error {
	return fmt.Errorf("nftables table %s %s: %w", t.Family, t.Name, err)
}

// PortID returns the port ID of the socket, which the kernel's events about the programmer's changes have.
func (p *Programmer) PortID() uint32 { return p.conn.PortID() }
