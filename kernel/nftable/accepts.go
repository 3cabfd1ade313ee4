package nftable

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Accepts reports whether the kernel has everything that a rule uses; it loads modules for it. The rule is created in a
// table of its own and deleted again in one transaction, so that no packet meets it. The table's name must not be in use.
func (p *Programmer) Accepts(ctx context.Context, family, table, rule string) (bool, error) {
	const chain = "try"
	pl := &plan{state: &state{family: family, name: table}}
	pl.newTable()
	pl.newChain(chain, &Chain{Rules: []Rule{{Text: rule}}}, newChains, newRules)
	pl.add(deleteSets, "delete the table", pl.state.table().Delete(nil), nil)
	err := p.commit(ctx, pl, pl.whole())
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("try a rule in the nftables table %s %s: %w", family, table, err)
	}
	return true, nil
}
