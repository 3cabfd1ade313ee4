package nftable_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// world changes a table at random. It remembers the names of the changed sets, chains and elements.
type world struct {
	*rand.Rand
	table   *nftable.Table
	changes nftable.Changes
}

func newWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 0)), table: nftable.New("inet", "fairlead-random")}
	w.begin()
	return w
}

func (w *world) begin() {
	w.changes = nftable.Changes{Chains: map[string]bool{}, Sets: map[string]bool{}, Keys: map[string]map[string]bool{}}
}

func pick[V any](w *world, m map[string]V) string {
	keys := slices.Sorted(maps.Keys(m))
	if len(keys) == 0 {
		return ""
	}
	return keys[w.IntN(len(keys))]
}

// kinds of sets, with a key for a number. Keys of different numbers do not overlap.
var kinds = []struct {
	typ      string
	interval bool
	key      func(n int) string
	rule     string
}{
	{"ipv4_addr", false, func(n int) string { return fmt.Sprintf("10.1.0.%d", n) }, "ip saddr @%s"},
	{"ipv6_addr", false, func(n int) string { return fmt.Sprintf("fd00::%x", n+1) }, "ip6 daddr @%s"},
	{"ipv4_addr", true, func(n int) string {
		if n == 39 {
			return "255.255.0.0-255.255.255.255"
		}
		return fmt.Sprintf("10.%d.0.0-10.%d.255.%d", n, n, 255-n%2) // some ranges touch the next one
	}, "ip daddr @%s"},
	{"ipv6_addr", true, func(n int) string { return fmt.Sprintf("fd00:%x::-fd00:%x::ffff", n+1, n+1) }, "ip6 saddr @%s"},
	{"ipv4_addr . inet_service", true, func(n int) string { return fmt.Sprintf("10.0.0.0-10.0.0.9 . %d-%d", n*100+1, n*100+1+n%99+1) }, "ip daddr . th dport @%s"},
	{"ipv4_addr . ipv4_addr", false, func(n int) string { return fmt.Sprintf("10.1.0.1 . 10.1.0.%d", n) }, "ip saddr . ip daddr @%s"},
	{"ipv4_addr : verdict", false, func(n int) string { return fmt.Sprintf("10.1.0.%d", n) }, "ip saddr vmap @%s"},
	{"ipv6_addr : verdict", false, func(n int) string { return fmt.Sprintf("fd00::%x", n+1) }, "ip6 daddr vmap @%s"},
}

const keysOfSet = 40

// step makes one random change.
func (w *world) step() {
	switch w.IntN(9) {
	case 0:
		w.addSet()
	case 1:
		w.deleteSet()
	case 2:
		w.addChain()
	case 3:
		w.deleteChain()
	case 4, 5:
		w.fillChain(pick(w, w.table.Chains))
	default:
		w.changeElements(pick(w, w.table.Sets))
	}
}

func (w *world) addSet() {
	k := w.IntN(len(kinds))
	name := fmt.Sprintf("s%d-%d", k, w.IntN(4))
	if w.table.Sets[name] != nil {
		return
	}
	w.table.Sets[name] = &nftable.Set{Type: kinds[k].typ, Interval: kinds[k].interval, Elements: map[string]string{}}
	w.changes.Sets[name] = true
	w.changeElements(name)
}

// deleteSet deletes a set and the rules that refer to it.
func (w *world) deleteSet() {
	name := pick(w, w.table.Sets)
	if name == "" {
		return
	}
	delete(w.table.Sets, name)
	w.changes.Sets[name] = true
	for chain := range w.table.Chains {
		w.dropRules(chain, "@"+name)
	}
}

// isBase reports whether the chain has a hook. Regular chains jump only to chains with a higher number, so there is no
// loop.
func isBase(name string) bool { return name[0] == 'b' }

func (w *world) addChain() {
	name := fmt.Sprintf("c%02d", w.IntN(15))
	hook := ""
	if w.IntN(5) == 0 {
		n := w.IntN(3)
		name, hook = fmt.Sprintf("b%d", n), fmt.Sprintf("type filter hook %s priority %d", []string{"input", "forward", "output"}[n], n*10-5)
	}
	if w.table.Chains[name] == nil {
		w.table.Chains[name] = &nftable.Chain{Hook: hook}
		w.changes.Chains[name] = true
		w.fillChain(name)
	}
}

// deleteChain deletes a chain and what refers to it.
func (w *world) deleteChain() {
	name := pick(w, w.table.Chains)
	if name == "" {
		return
	}
	delete(w.table.Chains, name)
	w.changes.Chains[name] = true
	for chain := range w.table.Chains {
		w.dropRules(chain, name)
	}
	for set, s := range w.table.Sets {
		for key, verdict := range s.Elements {
			if verdict == "goto "+name || verdict == "jump "+name {
				delete(s.Elements, key)
				w.changed(set, key)
			}
		}
	}
}

func (w *world) changed(set, key string) {
	if w.changes.Keys[set] == nil {
		w.changes.Keys[set] = map[string]bool{}
	}
	w.changes.Keys[set][key] = true
}

func (w *world) dropRules(chain, word string) {
	c := w.table.Chains[chain]
	kept := slices.DeleteFunc(slices.Clone(c.Rules), func(r nftable.Rule) bool { return containsWord(r.Text, word) })
	if len(kept) != len(c.Rules) {
		c.Rules = kept
		w.changes.Chains[chain] = true
	}
}

func (w *world) fillChain(name string) {
	if name == "" {
		return
	}
	c := w.table.Chains[name]
	c.Rules = nil
	for range w.IntN(5) {
		c.Rules = append(c.Rules, w.rule(name))
	}
	w.changes.Chains[name] = true
}

func (w *world) rule(chain string) nftable.Rule {
	text := []string{"counter", "th dport 80 accept", "log prefix \"a b\" group 3", "ct state established,related accept", "limit rate over 10/second burst 20 packets drop"}[w.IntN(5)]
	if set := pick(w, w.table.Sets); set != "" && w.IntN(2) == 0 {
		k, _ := strconv.Atoi(set[1:2])
		text = fmt.Sprintf(kinds[k].rule, set)
		if !isVerdictMap(kinds[k].typ) {
			text += " drop"
		} else if !isBase(chain) {
			text = "counter" // only base chains look into maps, so there is no loop
		}
	} else if target := w.target(chain); target != "" && w.IntN(2) == 0 {
		text = "jump " + target
	}
	return nftable.Rule{Text: text, Comment: []string{"", "why"}[w.IntN(2)]}
}

// target returns a chain to which the chain may jump, or "".
func (w *world) target(from string) string {
	to := pick(w, w.table.Chains)
	if to == "" || isBase(to) || !isBase(from) && to <= from {
		return ""
	}
	return to
}

func (w *world) changeElements(set string) {
	if set == "" {
		return
	}
	s := w.table.Sets[set]
	k, _ := strconv.Atoi(set[1:2])
	for range 1 + w.IntN(6) {
		key := kinds[k].key(w.IntN(keysOfSet))
		if _, ok := s.Elements[key]; ok && w.IntN(2) == 0 {
			delete(s.Elements, key)
		} else {
			s.Elements[key] = w.value(s.Type)
		}
		w.changed(set, key)
	}
}

func (w *world) value(typ string) string {
	if !isVerdictMap(typ) {
		return ""
	}
	if to := w.target("b"); to != "" {
		return []string{"goto ", "jump "}[w.IntN(2)] + to
	}
	return []string{"drop", "accept"}[w.IntN(2)]
}

// TestRandomChanges applies random changes. The kernel then has what a second programmer writes at once in another
// namespace, and what nft reads from the text. Sync finds nothing to do.
func TestRandomChanges(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	seed := uint64(1)
	if s, err := strconv.ParseUint(os.Getenv("FAIRLEAD_SEED"), 10, 64); err == nil {
		seed = s
	}
	steps := rounds(400)
	if n, err := strconv.Atoi(os.Getenv("FAIRLEAD_RANDOM")); err == nil {
		steps = n
	}
	w := newWorld(seed)
	p := open(t)
	sync(t, p, w.table)
	for step := range steps {
		w.begin()
		for range 1 + w.IntN(5) {
			w.step()
		}
		found, err := p.Apply(t.Context(), w.table, w.changes)
		if err != nil || found != nil {
			t.Fatalf("seed %d, step %d: %v, found %q\n%s", seed, step, err, found, script(w.table))
		}
		if step%20 != 19 {
			continue
		}
		have := listed(t, "", w.table)
		if d := kerneltest.Diff(written(t, w.table), have); d != "" {
			t.Fatalf("seed %d, step %d: written at once (-) and step by step (+):\n%s", seed, step, d)
		}
		other := kerneltest.Netns(t)
		load(t, other, script(w.table))
		if d := kerneltest.Diff(listed(t, other, w.table), have); d != "" {
			t.Fatalf("seed %d, step %d: nft (-) and step by step (+):\n%s", seed, step, d)
		}
		if found := sync(t, p, w.table); found != nil {
			t.Fatalf("seed %d, step %d: found %q", seed, step, found)
		}
	}
}

// written writes a table in a new namespace and returns nft's list of it.
func written(t *testing.T, table *nftable.Table) (list string) {
	t.Helper()
	netns := kerneltest.Netns(t)
	err := kerneltest.Inside(netns, func() error {
		p, err := nftable.Open()
		if err != nil {
			return err
		}
		defer p.Close()
		_, err = p.Sync(t.Context(), table)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return listed(t, netns, table)
}

func containsWord(text, word string) bool { return slices.Contains(strings.Fields(text), word) }

func isVerdictMap(typ string) bool { return strings.HasSuffix(typ, " : verdict") }
