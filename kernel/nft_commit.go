package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/nft"
)

const maxRestarts = 64 // a restart means that another change was committed

// commit adds the nftables objects of the list in one transaction.
func (e *Engine) commit() error {
	list := distinct(e.nft)
	e.nft, e.keptByOther = nil, nil
	if len(list) == 0 {
		return nil
	}
	all := false
	for range maxRestarts {
		err := e.tryCommit(list, all)
		switch {
		case errors.Is(err, unix.ERESTART):
			continue
		case errors.Is(err, os.ErrNotExist) && !all:
			all = true // a set was deleted although its rules exist
			continue
		}
		if _, unanswered := errors.AsType[*netlink.UnansweredError](err); err == nil || unanswered {
			for _, o := range list {
				e.noteCreated(o)
			}
		}
		return err
	}
	return fmt.Errorf("nftables ruleset changed %d times while it was written: %w", maxRestarts, unix.EAGAIN)
}

// inRuleset is an object that an nftables transaction creates.
type inRuleset interface {
	Object
	// addTo adds the requests that create the object.
	addTo(*Engine, *transaction) error
	// exists handles the kernel's reply that the object exists. It reports whether to try the transaction again.
	exists(*Engine) (again bool, err error)
}

// distinct drops repeated objects. Two addresses of an attachment share objects.
func distinct[T inRuleset](list []T) (out []T) {
	seen := map[string]bool{}
	for _, o := range list {
		if s := o.String(); !seen[s] {
			seen[s] = true
			out = append(out, o)
		}
	}
	return out
}

func (e *Engine) tryCommit(list []inRuleset, all bool) error {
	c, err := e.Netfilter()
	if err != nil {
		return needsNFTables(err)
	}
	gen, missing, err := e.missingRules(list)
	if err != nil {
		return needsNFTables(err)
	}
	// If the rules of a chain group exist, its other parts exist, too. If not, the kernel reports a missing part, and
	// the next attempt adds all parts.
	b := &transaction{missing: missing, all: all, groups: map[string]bool{}}
	for n := range missing {
		b.groups[n.ChainGroup] = true
	}
	for n := range e.replaced.parts {
		b.groups[n.ChainGroup] = true
	}
	if err := e.addReplaced(b, list); err != nil {
		return err
	}
	for _, o := range list {
		if err := o.addTo(e, b); err != nil {
			return about(o, err)
		}
	}
	if len(missing) == 0 {
		gen = 0
	}
	resp, err := c.Transact(b.reqs, gen)
	if err != nil {
		return fmt.Errorf("nftables transaction: %w", err)
	}
	return e.checkReplies(b, resp)
}

// needsNFTables explains an error of a kernel without nftables.
func needsNFTables(err error) error {
	if !lacksSubsystem(err) {
		return err
	}
	return fmt.Errorf("the kernel lacks nftables: load the module nf_tables; "+
		`masquerade and host ports also work with "ipMasqBackend" and "backend" set to "iptables": %w`, err)
}

// addTo adds a part that does not exist. It does not add an existing chain again: the kernel treats that as an update,
// and the next process that closes its socket waits for a grace period (10 ms).
func (n *NFT) addTo(e *Engine, b *transaction) error {
	if !b.all && !b.groups[n.ChainGroup] {
		return nil
	}
	switch n.Kind {
	case "rule":
		if !b.missing[n] {
			return nil
		}
	case "chain":
		if _, err := n.read(e); err == nil && e.replaced.parts[n] == nil {
			return nil
		}
	}
	return b.add(n)
}

// exists accepts nothing: the kernel accepts an existing part, and a rule has no identity.
func (n *NFT) exists(*Engine) (again bool, err error) { return false, unix.EEXIST }

func (x *Element) addTo(e *Engine, b *transaction) error {
	if e.keptByOther[x] {
		return nil
	}
	return b.element(x)
}

// exists deletes the element if its owner is dead.
func (x *Element) exists(e *Engine) (again bool, err error) { return true, e.evict(x) }

type transaction struct {
	reqs    []netlink.Request
	objects []inRuleset

	missing map[*NFT]bool   // rules that do not exist
	groups  map[string]bool // chain groups of which a part is missing
	all     bool            // add every part
}

func (b *transaction) add(o *NFT) error {
	r, err := o.AddRequest()
	b.reqs, b.objects = append(b.reqs, r), append(b.objects, o)
	return err
}

// addAll adds requests about one object.
func (b *transaction) addAll(o inRuleset, reqs []netlink.Request) {
	for _, r := range reqs {
		b.reqs, b.objects = append(b.reqs, r), append(b.objects, o)
	}
}

func (b *transaction) element(o *Element) error {
	r, err := o.Wire().Add()
	b.reqs, b.objects = append(b.reqs, r), append(b.objects, o)
	return err
}

// checkReplies returns the first error of a transaction. If an element exists and its owner is dead, checkReplies
// deletes it and returns ERESTART.
func (e *Engine) checkReplies(b *transaction, resp []netlink.Response) error {
	replaced := false
	for i, r := range resp {
		if errors.Is(r.Err, unix.EEXIST) {
			again, err := b.objects[i].exists(e)
			if err != nil {
				return about(b.objects[i], err)
			}
			replaced = replaced || again
			continue
		}
		if r.Err != nil && !replaced {
			return about(b.objects[i], b.explain(b.objects[i], r.Err))
		}
	}
	if replaced {
		return unix.ERESTART
	}
	return nil
}

// explain adds the usual reason if a rule cannot be added although the transaction adds all its sets and chains.
func (b *transaction) explain(o inRuleset, err error) error {
	if n, ok := o.(*NFT); ok && n.Kind == "rule" && b.all && errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%w: the kernel may lack a module of nftables for this rule, such as nft_meta_bridge for family bridge", err)
	}
	return err
}

// evict deletes an element whose owner is dead or is the new owner itself. An element of another attachment of the same
// container stays: all its networks were needed for the host port, and the first one has it.
func (e *Engine) evict(x *Element) error {
	have, err := e.element(x)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if e.options.sameContainer(have.Comment, x.OwnerTag) && (e.options.Alive == nil || e.options.Alive(have.Comment)) {
		if e.keptByOther == nil {
			e.keptByOther = map[*Element]bool{}
		}
		e.keptByOther[x] = true
		return nil
	}
	if have.Comment != x.OwnerTag && (e.options.Alive == nil || e.options.Alive(have.Comment)) {
		return &TakenError{x.Key, have.Comment}
	}
	old := *x
	old.OwnerTag = have.Comment
	return e.removeElements([]*Element{&old}, nil, nil)
}

// missingRules returns the rules of the list that do not exist, and the generation of the ruleset for which that is
// true. If the list has no rules, all its parts count as missing.
func (e *Engine) missingRules(list []inRuleset) (gen uint32, out map[*NFT]bool, err error) {
	if gen, err = e.generation(); err != nil {
		return 0, nil, err
	}
	out = map[*NFT]bool{}
	parts := partsOf(list)
	have := chains{e: e, of: map[string]map[string]bool{}}
	have.read(parts)
	rules := false
	for _, n := range parts {
		if n.Kind != "rule" {
			if !rules {
				out[n] = true
			}
			continue
		}
		if !rules {
			rules, out = true, map[*NFT]bool{}
		}
		there, err := have.comments(n)
		if err != nil {
			return 0, nil, err
		}
		if !there[n.Tag()] || e.replaced.has(n) {
			out[n] = true
		}
	}
	return gen, out, nil
}

func partsOf(list []inRuleset) (out []*NFT) {
	for _, o := range list {
		out = append(out, Of[*NFT](Objects{o})...)
	}
	return out
}

// chains caches the comments of the rules in chains.
type chains struct {
	e  *Engine
	of map[string]map[string]bool // by chainOf
}

func chainOf(n *NFT) string { return n.Family + " " + n.Table + " " + n.Name }

// manyChains is the number of chains from which one list of all rules in our table, a handful per network, is cheaper
// than a list per chain.
const manyChains = 3

// read reads all rules of our table at once if the list needs many of its chains.
func (c *chains) read(parts []*NFT) {
	needed := map[string]map[string]bool{} // by family
	for _, n := range parts {
		if n.Kind == "rule" && n.Table == Table {
			if needed[n.Family] == nil {
				needed[n.Family] = map[string]bool{}
			}
			needed[n.Family][chainOf(n)] = true
		}
	}
	for family, keys := range needed {
		if len(keys) >= manyChains {
			c.readAll(family, keys)
		}
	}
}

func (c *chains) readAll(family string, keys map[string]bool) {
	all, err := c.e.NFTRules(family, Table, "")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return // each chain is read on its own later, and that error counts
	}
	for key := range keys {
		c.of[key] = map[string]bool{}
	}
	for _, r := range all {
		if of := c.of[family+" "+Table+" "+r.Chain]; of != nil {
			of[r.Comment] = true
		}
	}
}

func (c *chains) comments(n *NFT) (map[string]bool, error) {
	if out := c.of[chainOf(n)]; out != nil {
		return out, nil
	}
	out := map[string]bool{}
	have, err := c.e.NFTRules(n.Family, n.Table, n.Name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, r := range have {
		out[r.Comment] = true
	}
	c.of[chainOf(n)] = out
	return out, nil
}

// generation returns a number that changes with every change of any ruleset.
func (e *Engine) generation() (uint32, error) {
	resp, err := e.ReadNFT(netlink.Request{Type: nft.Subsystem | unix.NFT_MSG_GETGEN, Body: nft.Message("ip")})
	if err != nil {
		return 0, fmt.Errorf("nftables: %w", err)
	}
	if len(resp.Messages) == 0 || len(resp.Messages[0]) < 4 {
		return 0, nil
	}
	v := netlink.Attr(resp.Messages[0][4:], unix.NFTA_GEN_ID)
	if len(v) < 4 {
		return 0, nil
	}
	return binary.BigEndian.Uint32(v), nil
}
