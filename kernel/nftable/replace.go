package nftable

import (
	"context"
	"errors"
)

// copySuffix is what the name of the second table ends with, see replace.
const copySuffix = "-next"

// replace deletes the table and creates it again in one transaction. It is for differences that the kernel cannot change
// in place: a chain's hook, a set's type.
//
// The kernel lets packets search a new set of intervals only some time after the rules of the same transaction are in
// force: nf_tables_commit calls nft_set_commit_update at last. A second table with the same content closes that gap.
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

func (p *Programmer) createCopy(ctx context.Context, desired *state) error {
	if err := p.deleteCopy(ctx, desired); err != nil {
		return err
	}
	pl := &plan{state: desired.renamed(desired.name + copySuffix)}
	pl.newTable()
	pl.changes(&state{})
	return p.commit(ctx, pl, pl.divided())
}

// deleteCopy deletes the second table, if there is one: the kernel accepts to add a table that exists.
func (p *Programmer) deleteCopy(ctx context.Context, desired *state) error {
	pl := &plan{state: &state{family: desired.family, name: desired.name + copySuffix}}
	pl.newTable()
	pl.add(deleteSets, "delete the second table", pl.state.table().Delete(nil), nil)
	return p.commit(ctx, pl, pl.whole())
}

// renamed returns the same content for a table of another name.
func (s *state) renamed(name string) *state {
	out := &state{family: s.family, name: name, sets: map[string]*set{}, chains: s.chains}
	for n, x := range s.sets {
		c := *x
		c.Table = name
		out.sets[n] = &c
	}
	return out
}
