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
)

// Accept lets one address through a forward chain of somebody else's whose
// policy is to drop: an accept ends only its own base chain, so ours could not.
// Its rules stand at the chain's head and carry the owner's mark.
type Accept struct {
	base
	Family string `json:",omitzero"` // of the table: ip, ip6 or inet
	Table  string `json:",omitzero"`
	Chain  string `json:",omitzero"`
	Addr   string `json:",omitzero"`
	V6     bool   `json:",omitzero"`
	Mark   string `json:",omitzero"`
}

func (a *Accept) kind() string { return "accept" }
func (a *Accept) Side() Side   { return Host }
func (a *Accept) Shared() bool { return false }

func (a *Accept) String() string {
	return "nft insert rule " + a.Family + " " + a.Table + " " + a.Chain + " " + strings.Join(a.texts(), " accept; ") + " accept"
}

// texts are what a rule matches: what the container sends, what belongs to
// connections that it has, and what came to a host port of it.
func (a *Accept) texts() []string {
	ip := "ip"
	if a.V6 {
		ip = "ip6"
	}
	to := ip + " daddr " + a.Addr
	return []string{ip + " saddr " + a.Addr, to + " ct state established,related", to + " ct status dnat"}
}

func (a *Accept) ensure(e *Engine) error {
	if d, err := a.diff(e); err == nil && len(d) == 0 {
		return nil
	}
	var reqs []request
	for _, text := range a.texts() {
		exprs, err := compileRule(nftFamily(a.Family), text+" accept")
		if err != nil {
			return err
		}
		b := nfgen(a.Family)
		b.str(unix.NFTA_RULE_TABLE, a.Table)
		b.str(unix.NFTA_RULE_CHAIN, a.Chain)
		b.bytes(unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, exprs)
		b.bytes(unix.NFTA_RULE_USERDATA, commentTLV(a.Mark))
		reqs = append(reqs, request{nftSubsystem | unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE, b}) // no append: at the head
	}
	err := e.transaction(reqs)
	if err == nil {
		e.made(a)
	}
	return err
}

func (e *Engine) transaction(reqs []request) error {
	c, err := e.netfilter()
	if err != nil {
		return err
	}
	resp, err := c.transact(reqs, 0)
	errs := []error{err}
	for _, r := range resp {
		errs = append(errs, r.err)
	}
	return errors.Join(errs...)
}

func (a *Accept) diff(e *Engine) ([]string, error) {
	have, err := e.rules(a.Family, a.Table, a.Chain)
	if err != nil {
		return nil, err
	}
	n := 0
	for _, r := range have {
		if r.comment == a.Mark {
			n++
		}
	}
	if n < len(a.texts()) {
		return []string{"is missing"}, nil
	}
	return nil, nil
}

// remove deletes the owner's rules of the chain.
func (a *Accept) remove(e *Engine) error {
	return e.dropRules(*a, func(mark string) bool { return mark == a.Mark })
}

func (e *Engine) dropRules(a Accept, dead func(string) bool) error {
	have, err := e.rules(a.Family, a.Table, a.Chain)
	if err != nil {
		return err
	}
	var reqs []request
	for _, r := range have {
		if r.comment == "" || !dead(r.comment) {
			continue
		}
		b := nfgen(a.Family)
		b.str(unix.NFTA_RULE_TABLE, a.Table)
		b.str(unix.NFTA_RULE_CHAIN, a.Chain)
		b.bytes(unix.NFTA_RULE_HANDLE, r.handle)
		reqs = append(reqs, request{nftSubsystem | unix.NFT_MSG_DELRULE, 0, b})
	}
	if len(reqs) == 0 {
		return os.ErrNotExist
	}
	return e.transaction(reqs)
}

// Dropping is a forward chain of others whose policy is to drop.
type Dropping struct {
	Family, Table, Chain string
	Legacy               bool // of iptables before nftables, which keeps its rules elsewhere
}

// IPTables tells whether the chain is one that iptables keeps, which no other
// tool may write to.
func (d Dropping) IPTables() bool {
	return (d.Family == "ip" || d.Family == "ip6") && d.Table == "filter" && d.Chain == "FORWARD"
}

const (
	nfHookForward = 2 // linux/netfilter.h
	nfPolicyDrop  = 0
)

// Dropping lists them, ours left out. Chains are listed, no rules.
func (e *Engine) Dropping() (out []Dropping, err error) {
	c, err := e.netfilter()
	if err != nil {
		return nil, err
	}
	body := nfgen("")
	body[0] = unix.AF_UNSPEC // of every family, in one list
	msgs, err := c.dump(request{typ: nftSubsystem | unix.NFT_MSG_GETCHAIN, body: body})
	if err != nil && !isAbsent(err) {
		return nil, fmt.Errorf("list nftables chains: %w", err)
	}
	for _, family := range []string{"ip", "ip6", "inet"} {
		for _, m := range msgs {
			if len(m) > 4 && m[0] == nftFamily(family) && dropsForward(m[4:]) {
				out = append(out, Dropping{family, text(attr(m[4:], unix.NFTA_CHAIN_TABLE)), text(attr(m[4:], unix.NFTA_CHAIN_NAME)), false})
			}
		}
	}
	out = slices.DeleteFunc(out, func(d Dropping) bool { return d.Table == Table })
	return append(out, legacyDropping()...), nil
}

// legacyDropping asks iptables-legacy, where its tables are in use.
func legacyDropping() (out []Dropping) {
	for _, family := range []string{"ip", "ip6"} {
		command, used := legacyCommand(family, "filter")
		if !used {
			continue
		}
		rules, err := exec.Command(command, "-w", "-S", "FORWARD").Output()
		if err == nil && strings.HasPrefix(string(rules), "-P FORWARD DROP") {
			out = append(out, Dropping{family, "filter", "FORWARD", true})
		}
	}
	return out
}

// legacyCommand is the command for a family, and whether its table is in use.
func legacyCommand(family, table string) (command string, used bool) {
	names, err := plainfile.Read("/proc/net/" + family + "_tables_names")
	return family + "tables-legacy", err == nil && slices.Contains(strings.Fields(string(names)), table)
}

func dropsForward(chain []byte) bool {
	hook, policy := attr(chain, unix.NFTA_CHAIN_HOOK), attr(chain, unix.NFTA_CHAIN_POLICY)
	return len(hook) > 0 && len(policy) == 4 && be32of(attr(hook, unix.NFTA_HOOK_HOOKNUM)) == nfHookForward && be32of(policy) == nfPolicyDrop
}

// removeAccepts removes, from the chains that drop, the rules whose mark is dead.
func (e *Engine) removeAccepts(dead func(mark string) bool) error {
	list, err := e.Dropping()
	errs := []error{err}
	for _, d := range list {
		if d.IPTables() {
			continue // the words of iptables' rules are found by its own command
		}
		err := e.dropRules(Accept{Family: d.Family, Table: d.Table, Chain: d.Chain}, func(mark string) bool {
			return len(mark) > len(markPrefix) && mark[:len(markPrefix)] == markPrefix && dead(mark)
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
