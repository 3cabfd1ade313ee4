package kernel

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// commitRemoval deletes the elements that Remove gathered, and with them the
// groups that this leaves empty.
func (e *Engine) commitRemoval() error {
	var elements []*Element
	for _, o := range e.nft {
		if x, ok := o.(*Element); ok {
			elements = append(elements, x)
		}
	}
	groups := e.groups
	e.nft, e.groups = nil, nil
	if len(elements) == 0 && len(groups) == 0 {
		return nil
	}
	if err := e.removeElements(elements, groups, nil); err != nil {
		return fmt.Errorf("remove nftables elements: %w", err)
	}
	return nil
}

// removeElements deletes those elements that still carry their mark: another
// attachment may have the same address by now. And whose mark is still dead, if
// that is given: the same attachment may have come back.
func (e *Engine) removeElements(list []*Element, groups []*NFT, dead func(mark string) bool) error {
	for range restarts {
		err := e.tryRemove(list, groups, dead)
		if errors.Is(err, unix.ERESTART) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EBUSY) {
			continue
		}
		return err
	}
	return fmt.Errorf("ruleset changed %d times meanwhile: %w", restarts, unix.EAGAIN)
}

func (e *Engine) tryRemove(list []*Element, groups []*NFT, dead func(mark string) bool) error {
	gen, err := e.generation()
	if err != nil {
		return err
	}
	b := &transaction{}
	leaving := map[string]map[string]bool{} // set -> keys
	for _, x := range list {
		have, err := e.element(x)
		if errors.Is(err, os.ErrNotExist) || err == nil && have.comment != x.Mark {
			continue
		}
		if err != nil {
			return err
		}
		if dead != nil && !dead(x.Mark) { // asked after the generation was: what comes later moves that
			continue
		}
		body, err := x.body(false)
		if err != nil {
			return err
		}
		b.reqs = append(b.reqs, request{nftSubsystem | unix.NFT_MSG_DELSETELEM, 0, body})
		b.objects = append(b.objects, x)
		if heir := e.heirs[x.place()]; heir != nil && SameContainer(heir.Mark, x.Mark) {
			if err := b.element(heir); err != nil {
				return err
			}
			continue
		}
		table, set := x.setOf()
		if leaving[table+" "+set] == nil {
			leaving[table+" "+set] = map[string]bool{}
		}
		leaving[table+" "+set][string(have.key)] = true
	}
	if err := e.dropEmpty(b, groups, leaving); err != nil {
		return err
	}
	if len(b.reqs) == 0 {
		return nil
	}
	c, err := e.netfilter()
	if err != nil {
		return err
	}
	resp, err := c.transact(b.reqs, gen)
	if err != nil {
		return err
	}
	for i, r := range resp {
		if r.err != nil {
			return fmt.Errorf("%s: %w", b.objects[i], r.err)
		}
	}
	return nil
}

// Bequeath names what other attachments of a container want as well: what Remove
// takes of the same set and key becomes theirs, in the same transaction. They must
// stand until Remove is over.
func (e *Engine) Bequeath(wanted Objects) {
	e.heirs = map[string]*Element{}
	for _, o := range wanted {
		if x, ok := o.(*Element); ok {
			e.heirs[x.place()] = x
		}
	}
}

// place is what no two elements have in common.
func (x *Element) place() string {
	table, set := x.setOf()
	return table + " " + set + " " + x.Key
}

// dropEmpty adds the deletion of every group whose sets hold nothing but what
// is leaving: its rules, then its chains, then its sets.
func (e *Engine) dropEmpty(b *transaction, parts []*NFT, leaving map[string]map[string]bool) error {
	for _, g := range groupNames(parts) {
		empty, err := e.groupEmpty(g, parts, leaving)
		if err != nil || !empty {
			return err
		}
		for _, what := range []string{"rule", "chain", "set", "map"} {
			for _, n := range parts {
				if n.Group != g || n.What != what {
					continue
				}
				if err := e.dropPart(b, n); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func groupNames(parts []*NFT) (out []string) {
	seen := map[string]bool{}
	for _, n := range parts {
		if !seen[n.Group] {
			seen[n.Group] = true
			out = append(out, n.Group)
		}
	}
	return out
}

func (e *Engine) groupEmpty(group string, parts []*NFT, leaving map[string]map[string]bool) (bool, error) {
	there := false
	for _, n := range parts {
		if n.Group != group || n.What != "set" && n.What != "map" {
			continue
		}
		keys, err := e.someKeys(n.Family, n.Table, n.Name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		there = true
		for _, k := range keys {
			if !leaving[n.Family+" "+n.Table+" "+n.Name][k] {
				return false, nil
			}
		}
	}
	return there, nil
}

func (e *Engine) dropPart(b *transaction, n *NFT) error {
	if n.What != "rule" {
		if _, err := n.diff(e); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		b.reqs, b.objects = append(b.reqs, n.drop(nil)), append(b.objects, n)
		return nil
	}
	have, err := e.rules(n.Family, n.Table, n.Name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, r := range have {
		if r.comment == n.mark() {
			b.reqs, b.objects = append(b.reqs, n.drop(r.handle)), append(b.objects, n)
		}
	}
	return nil
}

// someKeys returns the keys in the first part of a set's list: enough to tell
// whether it holds others, at a cost that does not grow with the set.
func (e *Engine) someKeys(family, table, set string) ([]string, error) {
	c, err := dial(unix.NETLINK_NETFILTER, e.rx) // of its own: the rest of the list is not read
	if err != nil {
		return nil, err
	}
	defer c.close()
	b := nfgen(family)
	b.str(unix.NFTA_SET_ELEM_LIST_TABLE, table)
	b.str(unix.NFTA_SET_ELEM_LIST_SET, set)
	var out buf
	c.seq++
	appendMessage(&out, nftSubsystem|unix.NFT_MSG_GETSETELEM, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, c.seq, b)
	if err := c.send(out); err != nil {
		return nil, err
	}
	resp := make([]response, 1)
	if _, err := c.read(c.seq, resp); err != nil {
		return nil, err
	}
	if resp[0].err != nil && !errors.Is(resp[0].err, errInterrupted) {
		return nil, resp[0].err
	}
	var keys []string
	for _, x := range parseElements(resp[0].msgs) {
		keys = append(keys, string(x.key))
	}
	return keys, nil
}
