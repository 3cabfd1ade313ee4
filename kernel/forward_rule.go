package kernel

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/plainfile"
	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/nft"
)

// Accept lets one address through a forward chain of somebody else's whose
// policy is to drop: an accept ends only its own base chain, so ours could not.
// Its rules stand at the chain's head and carry the owner's mark.
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
	return "nft insert rule " + a.Family + " " + a.Table + " " + a.Chain + " " + strings.Join(a.texts(), " accept; ") + " accept"
}

// texts are what a rule matches: what the container sends, what belongs to
// connections that it has, and what came to a host port of it.
func (a *ForwardRule) texts() []string {
	ip := "ip"
	if a.V6 {
		ip = "ip6"
	}
	to := ip + " daddr " + a.Addr
	return []string{ip + " saddr " + a.Addr, to + " ct state established,related", to + " ct status dnat"}
}

func (a *ForwardRule) ensure(e *Engine) error {
	if d, err := a.diff(e); err == nil && len(d) == 0 {
		return nil
	}
	var reqs []netlink.Request
	for _, text := range a.texts() {
		add, err := nft.Part{Family: a.Family, Table: a.Table, Kind: "rule", Name: a.Chain, Text: text + " accept", Comment: a.OwnerTag}.Add()
		if err != nil {
			return err
		}
		add.Flags &^= unix.NLM_F_APPEND // insert at the head
		reqs = append(reqs, add)
	}
	err := e.nftTransaction(reqs)
	if err == nil {
		e.noteCreated(a)
	}
	return err
}

func (a *ForwardRule) diff(e *Engine) ([]string, error) {
	have, err := e.NFTRules(a.Family, a.Table, a.Chain)
	if err != nil {
		return nil, err
	}
	n := 0
	for _, r := range have {
		if r.Comment == a.OwnerTag {
			n++
		}
	}
	if n < len(a.texts()) {
		return []string{"is missing"}, nil
	}
	return nil, nil
}

// remove deletes the owner's rules of the chain.
func (a *ForwardRule) remove(e *Engine) error {
	return e.deleteRules(a.Family, a.Table, a.Chain, func(tag string) bool { return tag == a.OwnerTag })
}

// Dropping is a forward chain of others whose policy is to drop.
type ForwardDropChain struct {
	Family, Table, Chain string
	Legacy               bool // of iptables before nftables, which keeps its rules elsewhere
}

// IPTables tells whether the chain is one that iptables keeps, which no other
// tool may write to.
func (d ForwardDropChain) IPTables() bool {
	return (d.Family == "ip" || d.Family == "ip6") && d.Table == "filter" && d.Chain == "FORWARD"
}

// Dropping lists them, ours left out. Chains are listed, no rules.
func (e *Engine) ForwardDropChains() (out []ForwardDropChain, err error) {
	c, err := e.Netfilter()
	if err != nil {
		return nil, err
	}
	msgs, err := c.Dump(netlink.Request{Type: nft.Subsystem | unix.NFT_MSG_GETCHAIN, Body: nft.MessageForAll()})
	if err != nil && !netlink.IsAbsent(err) {
		return nil, fmt.Errorf("list nftables chains: %w", err)
	}
	for _, family := range []string{"ip", "ip6", "inet"} {
		for _, m := range msgs {
			if len(m) <= 4 || m[0] != nft.FamilyNumber(family) {
				continue
			}
			if c := nft.ParseChain(m); c.Hook == "forward" && c.Drop {
				out = append(out, ForwardDropChain{Family: family, Table: c.Table, Chain: c.Name})
			}
		}
	}
	out = slices.DeleteFunc(out, func(d ForwardDropChain) bool { return d.Table == Table })
	return append(out, legacyForwardDropChains()...), nil
}

// legacyDropping asks iptables-legacy, where its tables are in use.
func legacyForwardDropChains() (out []ForwardDropChain) {
	for _, family := range []string{"ip", "ip6"} {
		command, used := legacyCommand(family, "filter")
		if !used {
			continue
		}
		rules, err := exec.Command(command, "-w", "-S", "FORWARD").Output()
		if err == nil && strings.HasPrefix(string(rules), "-P FORWARD DROP") {
			out = append(out, ForwardDropChain{family, "filter", "FORWARD", true})
		}
	}
	return out
}

// legacyCommand is the command for a family, and whether its table is in use.
func legacyCommand(family, table string) (command string, used bool) {
	names, err := plainfile.Read("/proc/net/" + family + "_tables_names")
	return family + "tables-legacy", err == nil && slices.Contains(strings.Fields(string(names)), table)
}

// removeForwardRules removes, from the chains that drop, the rules whose mark is dead.
func (e *Engine) removeForwardRules(dead func(mark string) bool) error {
	list, err := e.ForwardDropChains()
	errs := []error{err}
	for _, d := range list {
		if d.IPTables() {
			continue // the words of iptables' rules are found by its own command
		}
		err := e.deleteRules(d.Family, d.Table, d.Chain, func(mark string) bool {
			return len(mark) > len(TagPrefix) && mark[:len(TagPrefix)] == TagPrefix && dead(mark)
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
