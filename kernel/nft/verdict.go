package nft

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

var verdicts = [...]struct {
	name string
	code int32
}{{"drop", dropCode}, {"accept", acceptCode}, {"jump", unix.NFT_JUMP}, {"goto", unix.NFT_GOTO}, {"return", unix.NFT_RETURN}}

const dropCode, acceptCode = 0, 1 // NF_DROP, NF_ACCEPT of linux/netfilter.h

// verdict is what ends a rule, or the value in a map to verdicts.
type verdict struct {
	code  int32
	chain string // of jump and goto
}

func verdictByName(name string) (code int32, ok bool) {
	for i := range verdicts {
		if verdicts[i].name == name {
			return verdicts[i].code, true
		}
	}
	return 0, false
}

// readVerdict reads "drop" or "goto CHAIN".
func readVerdict(text string) (verdict, error) {
	name, chain, _ := strings.Cut(text, " ")
	code, ok := verdictByName(name)
	if jumps := code == unix.NFT_JUMP || code == unix.NFT_GOTO; !ok || jumps != (chain != "") {
		return verdict{}, fmt.Errorf("unknown verdict %q", text)
	}
	return verdict{code, chain}, nil
}

// append writes NFTA_DATA_VERDICT.
func (v verdict) append(b *netlink.Buffer) {
	b.Nest(unix.NFTA_DATA_VERDICT, func(b *netlink.Buffer) {
		b.Uint32BE(unix.NFTA_VERDICT_CODE, uint32(v.code))
		if v.chain != "" {
			b.String(unix.NFTA_VERDICT_CHAIN, v.chain)
		}
	})
}

// parseVerdict reads a verdict and the chain of a jump or goto. "continue" is "": it ends
// nothing. A verdict without a name is "queue".
func parseVerdict(v []byte) (verdict, chain string) {
	chain = netlink.Text(netlink.Attr(v, unix.NFTA_VERDICT_CHAIN))
	code := int32(netlink.Uint32BE(netlink.Attr(v, unix.NFTA_VERDICT_CODE)))
	if code == unix.NFT_CONTINUE {
		return "", chain
	}
	for i := range verdicts {
		if verdicts[i].code == code {
			return verdicts[i].name, chain
		}
	}
	return "queue", chain
}

// verdictText returns a verdict as nft(8) writes it.
func verdictText(v []byte) string {
	name, chain := parseVerdict(v)
	if chain == "" {
		return name
	}
	return name + " " + chain
}
