package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/nft"
)

// commitRemoval deletes the elements that Remove gathered, and the chain groups that become empty.
func (e *Engine) commitRemoval() error {
	elements, groups := e.leaving, e.chainGroups
	e.leaving, e.chainGroups = nil, nil
	if len(elements) == 0 && len(groups) == 0 {
		return nil
	}
	if err := e.removeElements(elements, groups, nil); err != nil {
		return fmt.Errorf("remove nftables elements: %w", err)
	}
	return nil
}

// removeElements deletes the elements that still carry their owner tag: another attachment may have got the same
// address. If dead is given, it also checks that the owner is still dead: the same attachment may have come back. Groups
// that an administrator's rule refers to stay; a later removal deletes them.
func (e *Engine) removeElements(list []*Element, groups []*NFT, dead func(tag string) bool) error {
	for range maxRestarts {
		err := e.tryRemove(list, groups, dead)
		switch {
		case errors.Is(err, unix.EBUSY) && groups != nil:
			groups = nil
		case errors.Is(err, unix.ERESTART) || errors.Is(err, unix.ENOENT):
		default:
			return err
		}
	}
	return fmt.Errorf("nftables ruleset changed %d times meanwhile: %w", maxRestarts, unix.EAGAIN)
}

func (e *Engine) tryRemove(list []*Element, groups []*NFT, dead func(tag string) bool) error {
	gen, err := e.generation()
	if lacksSubsystem(err) {
		return nil
	}
	if err != nil {
		return err
	}
	b := &transaction{}
	leaving := map[string]map[string]bool{} // set -> keys
	for _, x := range list {
		if err := e.removeElement(b, x, leaving, dead); err != nil {
			return err
		}
	}
	if err := e.dropEmpty(b, groups, leaving); err != nil {
		return err
	}
	if len(b.reqs) == 0 {
		return nil
	}
	c, err := e.Netfilter()
	if err != nil {
		return err
	}
	resp, err := c.Transact(b.reqs, gen)
	if err != nil {
		return err
	}
	for i, r := range resp {
		if r.Err != nil {
			return fmt.Errorf("%s: %w", b.objects[i], r.Err)
		}
	}
	return nil
}

// removeElement adds the deletion of an element that still has its owner tag, once if the list has it twice. It notes in
// leaving that the key goes, or false if the element passes to a successor.
func (e *Engine) removeElement(b *transaction, x *Element, leaving map[string]map[string]bool, dead func(tag string) bool) error {
	have, err := e.element(x)
	if errors.Is(err, os.ErrNotExist) || err == nil && have.Comment != x.OwnerTag {
		return nil
	}
	if err != nil {
		return err
	}
	if dead != nil && !dead(x.OwnerTag) { // asked after reading the generation, which a later change moves
		return nil
	}
	set, key := x.setName(), string(have.Key)
	if _, again := leaving[set][key]; again {
		return nil
	}
	del, err := x.Wire().Delete()
	if err != nil {
		return err
	}
	b.reqs, b.objects = append(b.reqs, del), append(b.objects, x)
	successor := e.successors[x.id()]
	passes := successor != nil && e.options.sameContainer(successor.OwnerTag, x.OwnerTag)
	if leaving[set] == nil {
		leaving[set] = map[string]bool{}
	}
	leaving[set][key] = !passes
	if passes {
		return b.element(successor)
	}
	return nil
}

// leave notes that the part may have become useless.
func (n *NFT) leave(e *Engine) {
	if n.ChainGroup != "" {
		e.chainGroups = append(e.chainGroups, n)
	}
}

// HandOver names the objects that other attachments of the same container also want. When Remove deletes an element
// with the same set and key, the same transaction gives it to that attachment. The other attachments must exist until
// Remove returns.
func (e *Engine) HandOver(wanted Objects) {
	e.successors = map[string]*Element{}
	for _, x := range Of[*Element](wanted) {
		e.successors[x.id()] = x
	}
}

// dropEmpty adds the deletion of every chain group whose sets hold only leaving elements: first its rules, then its
// chains, then its sets.
func (e *Engine) dropEmpty(b *transaction, parts []*NFT, leaving map[string]map[string]bool) error {
	parts = distinct(parts)
	for _, g := range groupNames(parts) {
		empty, err := e.groupEmpty(g, parts, leaving)
		if err != nil {
			return err
		}
		if !empty {
			continue
		}
		for _, what := range []string{"rule", "chain", "set", "map"} {
			for _, n := range parts {
				if n.ChainGroup != g || n.Kind != what {
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
		if !seen[n.ChainGroup] {
			seen[n.ChainGroup] = true
			out = append(out, n.ChainGroup)
		}
	}
	return out
}

func (e *Engine) groupEmpty(group string, parts []*NFT, leaving map[string]map[string]bool) (bool, error) {
	there := false
	for _, n := range parts {
		if n.ChainGroup != group || n.Kind != "set" && n.Kind != "map" {
			continue
		}
		stays, err := e.keepsElement(n, leaving[nft.SetName(n.Family, n.Table, n.Name)])
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		if stays {
			return false, nil
		}
		there = true
	}
	return there, nil
}

func (e *Engine) dropPart(b *transaction, n *NFT) error {
	if n.Kind != "rule" {
		if _, err := n.read(e); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		b.reqs, b.objects = append(b.reqs, n.part().Delete(nil)), append(b.objects, n)
		return nil
	}
	tag := n.Tag()
	reqs, err := e.ruleDeletions(n.Family, n.Table, n.Name, func(comment string) bool { return comment == tag })
	b.addAll(n, reqs)
	return err
}

// keepsElement reports whether a set has an element that is not leaving. It reads the set's list only up to the first
// one, so the cost does not grow with the set. The transaction fails if the set changes meanwhile. The error is
// unix.ERESTART if the list is incomplete.
func (e *Engine) keepsElement(set *NFT, leaving map[string]bool) (keeps bool, _ error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, e.rx) // its own socket: the rest of the list is not read
	if err != nil {
		return false, err
	}
	defer c.Close()
	w := stayingSearch{leaving: leaving, listed: nft.Repeats{}}
	if err := c.DumpUntil(nft.ListElements(set.Family, set.Table, set.Name), w.part); err != nil {
		return false, err
	}
	return w.result()
}

// stayingSearch looks for an element that is not leaving.
type stayingSearch struct {
	leaving    map[string]bool // keys
	listed     nft.Repeats
	found      bool
	incomplete bool
}

// part searches a part of the set's list, and reports whether it found an element.
func (w *stayingSearch) part(msgs [][]byte) bool {
	w.incomplete = w.listed.Add(msgs) || w.incomplete
	w.found = slices.ContainsFunc(nft.ParseElements(msgs), func(x nft.ElementInfo) bool { return !w.leaving[string(x.Key)] })
	return w.found
}

// result reports whether an element was found. If not, the error is unix.ERESTART if the list lacks elements.
func (w *stayingSearch) result() (bool, error) {
	if !w.found && w.incomplete {
		return false, unix.ERESTART
	}
	return w.found, nil
}
