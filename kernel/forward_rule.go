package kernel

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/plainfile"
	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/nft"
)

// ForwardRule lets one address pass a third-party forward chain whose policy is drop. An accept ends only its own base
// chain, so a rule in our table cannot do that. The rules are at the head of the chain and carry the owner tag.
type ForwardRule struct {
	base
	Family   string `json:",omitzero"` // of the table: ip, ip6 or inet
	Table    string `json:",omitzero"`
	Chain    string `json:",omitzero"`
	Addr     string `json:",omitzero"`
	V6       bool   `json:",omitzero"`
	OwnerTag string `json:"Mark,omitzero"`
}

func (a *ForwardRule) kind() string { return "accept" }
func (a *ForwardRule) Side() Side   { return Host }
func (a *ForwardRule) Shared() bool { return false }

func (a *ForwardRule) String() string {
	return "nft insert rule " + a.Family + " " + a.Table + " " + a.Chain + " " + strings.Join(a.matches(), " accept; ") + " accept"
}

// matches returns what the rules match: packets from the container, packets of its connections, and packets to its host
// ports.
func (a *ForwardRule) matches() []string {
	ip := "ip"
	if a.V6 {
		ip = "ip6"
	}
	to := ip + " daddr " + a.Addr
	return []string{ip + " saddr " + a.Addr, to + " ct state established,related", to + " ct status dnat"}
}

func (a *ForwardRule) ensure(e *Engine) error {
	reqs, err := a.missing(e)
	if err != nil || len(reqs) == 0 {
		return err
	}
	if err = e.nftTransaction(reqs); err == nil {
		e.noteCreated(a)
	}
	return err
}

// missing returns the requests that insert the rules that the chain lacks. It compares what the rules do: the rules for
// the owner's other addresses have the same comment.
func (a *ForwardRule) missing(e *Engine) (reqs []netlink.Request, err error) {
	have, err := e.NFTRules(a.Family, a.Table, a.Chain)
	if err != nil {
		return nil, err
	}
	chain := &nft.Chain{Family: a.Family, Table: a.Table, Name: a.Chain}
	var own [][]nft.Step
	for _, r := range have {
		if r.Comment == a.OwnerTag {
			own = append(own, nft.ParseRule(r.attrs, chain).Steps)
		}
	}
	for _, text := range a.matches() {
		add, err := nft.Part{Family: a.Family, Table: a.Table, Kind: "rule", Name: a.Chain, Text: text + " accept", Comment: a.OwnerTag}.Add()
		if err != nil {
			return nil, err
		}
		want := nft.ParseRule(add.Body[4:], chain).Steps
		if !slices.ContainsFunc(own, func(steps []nft.Step) bool { return reflect.DeepEqual(steps, want) }) {
			add.Flags &^= unix.NLM_F_APPEND // insert at the head
			reqs = append(reqs, add)
		}
	}
	return reqs, nil
}

// diff ignores a chain that is gone: it drops nothing, so it needs no accept rule.
func (a *ForwardRule) diff(e *Engine) ([]string, error) {
	reqs, err := a.missing(e)
	if netlink.IsAbsent(err) || err == nil && len(reqs) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []string{"is missing"}, nil
}

// remove deletes the owner's rules from the chain.
func (a *ForwardRule) remove(e *Engine) error {
	return e.deleteRules(a.Family, a.Table, a.Chain, func(tag string) bool { return tag == a.OwnerTag })
}

// ForwardDropChain is a third-party forward chain that may drop a container's packets.
type ForwardDropChain struct {
	Family, Table, Chain string
	Legacy               bool // of iptables-legacy, which does not use nftables
}

// IPTables reports whether iptables manages the chain. No other tool may write to such a chain.
func (d ForwardDropChain) IPTables() bool {
	return (d.Family == "ip" || d.Family == "ip6") && d.Table == "filter" && d.Chain == "FORWARD"
}

// ForwardDropChains lists the forward chains of other software whose policy is drop. It also lists a FORWARD chain of
// iptables with a rule that may drop packets, or whose family has rules in adminChain: packets reach that chain only
// through CNI-FORWARD.
func (e *Engine) ForwardDropChains(adminChain string) (out []ForwardDropChain, err error) {
	msgs, err := e.ListNFT(unix.NFT_MSG_GETCHAIN, nft.MessageForAll())
	if err != nil {
		return nil, fmt.Errorf("list nftables chains: %w", err)
	}
	for _, family := range []string{"ip", "ip6", "inet"} {
		iptables := false // the family has iptables' table filter
		for _, m := range msgs {
			if len(m) <= 4 || m[0] != nft.FamilyNumber(family) {
				continue
			}
			c := nft.ParseChain(m)
			iptables = iptables || family != "inet" && c.Table == "filter"
			if c.Hook == "forward" && c.Drop && c.Table != Table {
				out = append(out, ForwardDropChain{Family: family, Table: c.Table, Chain: c.Name})
			}
		}
		forward := ForwardDropChain{Family: family, Table: "filter", Chain: "FORWARD"}
		if !iptables || slices.Contains(out, forward) {
			continue
		}
		drops, err := e.rulesDrop(family, adminChain)
		if err != nil {
			return nil, err
		}
		if drops {
			out = append(out, forward)
		}
	}
	return append(out, e.legacyForwardDropChains(adminChain)...), nil
}

// rulesDrop reports whether a rule in iptables' FORWARD chain may drop packets, or whether the administrator's chain has
// rules.
func (e *Engine) rulesDrop(family, adminChain string) (bool, error) {
	for _, name := range []string{"FORWARD", adminChain} {
		if name == "" {
			continue
		}
		rules, err := e.NFTRules(family, "filter", name)
		if err != nil && !netlink.IsAbsent(err) {
			return false, err
		}
		chain := &nft.Chain{Family: family, Table: "filter", Name: name}
		if slices.ContainsFunc(rules, func(r NFTRule) bool {
			return name == adminChain || slices.ContainsFunc(nft.ParseRule(r.attrs, chain).Steps, mayDrop)
		}) {
			return true, nil
		}
	}
	return false, nil
}

// mayDrop reports whether a step drops a packet or passes it to a chain or target that may. The chains of the CNI
// plugins drop only what a configuration asks for.
func mayDrop(s nft.Step) bool {
	return s.Verdict == "drop" || s.Verdict == "queue" || s.Map || s.Chain != "" && !strings.HasPrefix(s.Chain, "CNI-")
}

// legacyForwardDropChains asks iptables-legacy where its tables are in use.
func (e *Engine) legacyForwardDropChains(adminChain string) (out []ForwardDropChain) {
	for _, family := range []string{"ip", "ip6"} {
		command, used := legacyCommand(family, "filter")
		if !used {
			continue
		}
		list, done := e.command(command, "-w", "-S")
		rules, err := list.Output()
		if done(err) == nil && legacyDrops(string(rules), adminChain) {
			out = append(out, ForwardDropChain{family, "filter", "FORWARD", true})
		}
	}
	return out
}

// legacyDrops answers like ForwardDropChains from the output of iptables -S.
func legacyDrops(rules, adminChain string) bool {
	for line := range strings.Lines(rules) {
		switch {
		case strings.HasPrefix(line, "-P FORWARD DROP"), strings.HasPrefix(line, "-A "+adminChain+" "):
			return true
		case strings.HasPrefix(line, "-A FORWARD ") && !strings.Contains(line, " -j ACCEPT") && !strings.Contains(line, " -j CNI-"):
			return true
		}
	}
	return false
}

// legacyCommand returns the command of iptables-legacy for a family, and whether its table is in use.
func legacyCommand(family, table string) (command string, used bool) {
	names, err := plainfile.Read("/proc/thread-self/net/" + family + "_tables_names") // where the command will run, too
	return family + "tables-legacy", err == nil && slices.Contains(strings.Fields(string(names)), table)
}

// removeForwardRules removes the rules of dead owners from third-party chains.
func (e *Engine) removeForwardRules(dead func(tag string) bool) error {
	list, err := e.ForwardDropChains("")
	errs := []error{err}
	for _, d := range list {
		if d.IPTables() {
			continue // a Command removes those rules
		}
		err := e.deleteRules(d.Family, d.Table, d.Chain, func(tag string) bool {
			return len(tag) > len(TagPrefix) && strings.HasPrefix(tag, TagPrefix) && dead(tag)
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
