package nftable

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// copySuffix ends the name of the second table, see replace.
const copySuffix = "-next"

// replace deletes the table and creates it again in one transaction. It is for differences that the kernel cannot change
// in place: a chain's hook, a set's type.
//
// For some microseconds, packets would meet the new rules and not find the elements of new sets of intervals: see the
// package comment. So a second table with the same content exists meanwhile: what either of the tables drops is dropped.
func (p *Programmer) replace(ctx context.Context, desired *state) error {
	err := p.createCopy(ctx, desired)
	if err == nil {
		pl := &plan{state: desired}
		pl.add(deleteTable, "delete the table", desired.table().Delete(nil), nil)
		pl.newTable()
		pl.changes(&state{})
		err = p.commit(ctx, pl, pl.whole())
	}
	return errors.Join(err, p.deleteCopy(ctx, desired))
}

// Delete deletes a table, and the second table of an interrupted Sync. It reports whether there was one.
func (p *Programmer) Delete(ctx context.Context, family, name string) (existed bool, err error) {
	p.have = nil
	s := &state{family: family, name: name}
	for _, t := range []*state{s, s.second()} {
		resp, err := p.conn.Do([]netlink.Request{t.table().Get()})
		if err != nil {
			return existed, err
		}
		if netlink.IsAbsent(resp[0].Err) {
			continue
		}
		pl := &plan{state: t}
		pl.add(deleteSets, "delete the table", t.table().Delete(nil), resp[0].Err)
		if err := p.commit(ctx, pl, pl.whole()); err != nil {
			return existed, fmt.Errorf("nftables table %s %s: %w", family, t.name, err)
		}
		existed = true
	}
	return existed, nil
}

func (p *Programmer) createCopy(ctx context.Context, desired *state) error {
	if err := p.deleteCopy(ctx, desired); err != nil {
		return err
	}
	pl := &plan{state: desired.copied()}
	pl.newTable()
	pl.changes(&state{})
	return p.commit(ctx, pl, pl.divided())
}

// deleteCopy deletes the second table, if there is one: the kernel accepts to add a table that exists.
func (p *Programmer) deleteCopy(ctx context.Context, desired *state) error {
	pl := &plan{state: desired.second()}
	pl.newTable()
	pl.add(deleteSets, "delete the second table", pl.state.table().Delete(nil), nil)
	return p.commit(ctx, pl, pl.whole())
}

// second returns the second table, without its content.
func (s *state) second() *state { return &state{family: s.family, name: s.name + copySuffix} }

// copied returns the second table.
func (s *state) copied() *state {
	out := s.second()
	out.sets, out.chains = map[string]*set{}, s.chains
	for n, x := range s.sets {
		c := *x
		c.Table = out.name
		out.sets[n] = &c
	}
	return out
}
