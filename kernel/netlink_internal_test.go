package kernel

import (
	"testing"

	"golang.org/x/sys/unix"
)

func FuzzReplies(f *testing.F) {
	f.Add(make([]byte, 64))
	for _, rule := range []string{"ip saddr @a jump b", "iifname != \"lo\" ip daddr 127.0.0.0/8 drop", "dnat ip to ip daddr . meta l4proto . th dport map @m"} {
		exprs, err := compileRule(nfprotoInet, rule)
		if err != nil {
			f.Fatal(err)
		}
		b := nfgen("inet")
		b.Bytes(unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, exprs)
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		parseLink(p)
		if len(p) >= unix.SizeofRtMsg {
			parseRoute(p)
		}
		parseElements([][]byte{p})
		parseComment(p)
		parseSet("inet", p)
		parseFilterElement(p)
		parseVerdict(p)
		if len(p) >= 4 {
			parseRule(p[4:], parseChain(p))
		}
	})
}

func FuzzRule(f *testing.F) {
	f.Add("ip saddr @a jump b")
	f.Add("dnat ip to ip daddr . meta l4proto . th dport map @m")
	f.Add("iifname != \"lo\" ip daddr 127.0.0.0/8 drop")
	f.Fuzz(func(t *testing.T, rule string) { _, _ = compileRule(nfprotoInet, rule) })
}
