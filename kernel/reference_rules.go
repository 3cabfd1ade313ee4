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

// ReferenceRules are rules that the reference plugins created for an attachment, in tables of other software. A host
// has them if it switched to Fairlead while containers were running. They are removed with the attachment, and never
// created or compared.
//
// The rules are in Chain. They jump to JumpTarget, which is deleted, too; or their comment is Comment, alone or
// followed by a comma; or they compare a packet's source or destination with Addr.
type ReferenceRules struct {
	base
	Family     string `json:",omitzero"` // ip, ip6, inet, bridge
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
	return errors.New("is a rule of a reference plugin: Fairlead only removes it")
}
func (f *ReferenceRules) diff(*Engine) ([]string, error) { return nil, nil }

// remove deletes the rules in one transaction. It also asks iptables-legacy, which does not use nftables, if its tables
// are in use.
func (f *ReferenceRules) remove(e *Engine) error {
	return errors.Join(f.removeNFT(e), f.removeLegacy(e))
}

func (f *ReferenceRules) removeNFT(e *Engine) error {
	body := nft.Message(f.Family)
	body.String(unix.NFTA_RULE_TABLE, f.Table)
	body.String(unix.NFTA_RULE_CHAIN, f.Chain)
	msgs, err := e.ListNFT(unix.NFT_MSG_GETRULE, body)
	if err != nil {
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
	if err := e.nftTransaction(reqs); err != nil && !netlink.IsAbsent(err) { // a concurrent DEL of the attachment may have deleted them
		return err
	}
	return nil
}

func (e *Engine) hasChain(family, table, name string) bool {
	_, err := e.ReadNFT(nft.Part{Family: family, Table: table, Kind: "chain", Name: name}.Get())
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

// removeLegacy deletes the rules with iptables-legacy.
func (f *ReferenceRules) removeLegacy(e *Engine) error {
	command, used := legacyCommand(f.Family, f.Table)
	if !used {
		return nil
	}
	save, done := e.command(command+"-save", "-t", f.Table)
	saved, err := save.Output()
	if err = done(err); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return nil
		}
		return fmt.Errorf("%s-save: %w", command, err)
	}
	text := f.deletion(string(saved))
	if text == "" {
		return nil
	}
	restore, done := e.command(command+"-restore", "-w", "--noflush")
	restore.Stdin = strings.NewReader(text)
	out, err := restore.CombinedOutput()
	if err = done(err); err != nil {
		return fmt.Errorf("%s-restore: %s: %w", command, strings.TrimSpace(string(out)), err)
	}
	return nil
}

// deletion returns the input of iptables-restore that deletes the rules from the output of iptables-save, or "" if
// there are none.
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
		host := f.Addr + "/32 "
		if err == nil && addr.Is6() {
			host = f.Addr + "/128 "
		}
		return strings.Contains(rule, " -s "+host) || strings.Contains(rule, " -d "+host)
	}
	return false
}
