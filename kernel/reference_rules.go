package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/nft"
)

// Foreign are rules that the reference's plugins made for an attachment, in tables of
// others: what a host that was switched while containers ran still has of them. They are
// removed with the attachment, and never made or compared.
//
// The rules are those of Chain that lead to Leads, which goes with them; or whose comment
// is Comment, or begins with it and a comma; or that compare a packet's source or
// destination with Addr.
type ReferenceRules struct {
	base
	Family     string `json:",omitzero"` // ip, ip6, inet
	Table      string `json:",omitzero"`
	Chain      string `json:",omitzero"`
	JumpTarget string `json:"Leads,omitzero"`
	Comment    string `json:",omitzero"`
	Addr       string `json:",omitzero"`
}

func (f *ReferenceRules) kind() string { return "foreign" }
func (f *ReferenceRules) Side() Side   { return Host }
func (f *ReferenceRules) Shared() bool { return false }

func (f *ReferenceRules) String() string {
	at := "nft rules of " + f.Family + " " + f.Table + " " + f.Chain
	switch {
	case f.JumpTarget != "":
		return at + " that jump to " + f.JumpTarget
	case f.Comment != "":
		return at + " with the comment " + f.Comment
	}
	return at + " about " + f.Addr
}

func (f *ReferenceRules) ensure(*Engine) error {
	return errors.New("is the reference's, and only ever removed")
}
func (f *ReferenceRules) diff(*Engine) ([]string, error) { return nil, nil }

// remove deletes them in one transaction; iptables' older variant, which keeps its rules
// elsewhere, is asked where its tables are in use.
func (f *ReferenceRules) remove(e *Engine) error {
	return errors.Join(f.removeNFT(e), f.removeLegacy())
}

func (f *ReferenceRules) removeNFT(e *Engine) error {
	c, err := e.Netfilter()
	if err != nil {
		return err
	}
	body := nft.Message(f.Family)
	body.String(unix.NFTA_RULE_TABLE, f.Table)
	body.String(unix.NFTA_RULE_CHAIN, f.Chain)
	msgs, err := c.Dump(netlink.Request{Type: nft.Subsystem | unix.NFT_MSG_GETRULE, Body: body})
	if err != nil && !netlink.IsAbsent(err) {
		return fmt.Errorf("list rules of %s %s %s: %w", f.Family, f.Table, f.Chain, err)
	}
	var reqs []netlink.Request
	for _, m := range msgs {
		if len(m) > 4 && f.matches(nft.ParseRule(m[4:], &nft.Chain{Family: f.Family, Table: f.Table})) {
			rule := nft.Part{Family: f.Family, Table: f.Table, Kind: "rule", Name: f.Chain}
			reqs = append(reqs, rule.Delete(netlink.Attr(m[4:], unix.NFTA_RULE_HANDLE)))
		}
	}
	if f.JumpTarget != "" && e.hasChain(f.Family, f.Table, f.JumpTarget) {
		own := nft.Part{Family: f.Family, Table: f.Table, Kind: "chain", Name: f.JumpTarget}
		all := nft.Message(f.Family)
		all.String(unix.NFTA_RULE_TABLE, f.Table)
		all.String(unix.NFTA_RULE_CHAIN, f.JumpTarget)
		reqs = append(reqs, netlink.Request{Type: nft.Subsystem | unix.NFT_MSG_DELRULE, Flags: unix.NLM_F_ACK, Body: all}, own.Delete(nil))
	}
	if len(reqs) == 0 {
		return nil
	}
	if err := e.nftTransaction(reqs); err != nil && !netlink.IsAbsent(err) { // another DEL of the attachment was first
		return err
	}
	return nil
}

func (e *Engine) hasChain(family, table, name string) bool {
	_, err := e.AskNFT(nft.Part{Family: family, Table: table, Kind: "chain", Name: name}.Get())
	return err == nil
}

func (f *ReferenceRules) matches(r nft.Rule) bool {
	addr, _ := netip.ParseAddr(f.Addr)
	switch {
	case f.JumpTarget != "":
		return slices.ContainsFunc(r.Steps, func(s nft.Step) bool { return s.Chain == f.JumpTarget })
	case f.Comment != "":
		return r.Comment == f.Comment || strings.HasPrefix(r.Comment, f.Comment+",")
	}
	return slices.ContainsFunc(r.Steps, func(s nft.Step) bool {
		return (s.Field == f.Family+" saddr" || s.Field == f.Family+" daddr") && s.Op == nft.CmpEqual && s.Mask == nil && bytes.Equal(s.Value, addr.AsSlice())
	})
}

// fromLegacy has iptables-legacy delete the rules, in its own words.
func (f *ReferenceRules) removeLegacy() error {
	command, used := legacyCommand(f.Family, f.Table)
	if !used {
		return nil
	}
	saved, err := exec.Command(command+"-save", "-t", f.Table).Output()
	if err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return nil
		}
		return fmt.Errorf("%s-save: %w", command, err)
	}
	text := f.deletion(string(saved))
	if text == "" {
		return nil
	}
	cmd := exec.Command(command+"-restore", "-w", "--noflush")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s-restore: %s: %w", command, strings.TrimSpace(string(out)), err)
	}
	return nil
}

// deletion is what iptables-restore reads to delete the rules from what
// iptables-save says; "": there are none.
func (f *ReferenceRules) deletion(saved string) string {
	var b strings.Builder
	own := false
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		own = own || f.JumpTarget != "" && strings.HasPrefix(line, ":"+f.JumpTarget+" ")
		if rest, ok := strings.CutPrefix(line, "-A "+f.Chain+" "); ok && f.matchesText(" "+rest+" ") {
			b.WriteString("-D " + f.Chain + " " + rest + "\n")
		}
	}
	if own {
		b.WriteString("-F " + f.JumpTarget + "\n-X " + f.JumpTarget + "\n")
	}
	if b.Len() == 0 {
		return ""
	}
	return "*" + f.Table + "\n" + b.String() + "COMMIT\n"
}

func (f *ReferenceRules) matchesText(rule string) bool {
	switch {
	case f.JumpTarget != "":
		return strings.Contains(rule, " -j "+f.JumpTarget+" ")
	case f.Addr != "":
		addr, err := netip.ParseAddr(f.Addr)
		whole := f.Addr + "/32 "
		if err == nil && addr.Is6() {
			whole = f.Addr + "/128 "
		}
		return strings.Contains(rule, " -s "+whole) || strings.Contains(rule, " -d "+whole)
	}
	return false
}
