package nft

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// decode compiles a rule and returns its steps in short: fields, "?" and verdicts.
func decode(t *testing.T, family, rule string) string {
	t.Helper()
	exprs, err := Compile(FamilyNumber(family), rule)
	if err != nil {
		t.Fatal(err)
	}
	var p netlink.Buffer
	p.Bytes(unix.NFTA_RULE_EXPRESSIONS, exprs)
	var out []string
	for _, s := range ParseRule(p, &Chain{Family: family, Table: "t"}).Steps {
		out = append(out, s.Field+s.Verdict+s.Chain)
	}
	return strings.Join(out, ", ")
}

func TestDecodeCompiledRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ family, rule, want string }{
		{"inet", "ip saddr 10.1.0.0/24 return", "meta nfproto, ip saddr, return"},
		{"inet", "ip6 saddr fd00::1 ip6 daddr @a drop", "meta nfproto, ip6 saddr, ip6 daddr, drop"},
		{"ip6", "ip6 nexthdr icmpv6 accept", "meta l4proto, accept"},
		{"bridge", "ether type arp arp saddr ether 02:00:00:00:00:01 drop", "ether type, meta protocol, arp saddr ether, drop"},
		{"bridge", "arp saddr ip 10.1.0.1 drop", "meta protocol, arp saddr ip, drop"},
		{"bridge", "ether saddr 02:00:00:00:00:01 drop", "ether saddr, drop"},
		{"inet", "udp sport 68 udp dport 67 drop", "meta l4proto, th sport, th dport, drop"},
		{"inet", "udp dport 8472 @th,96,24 0x12d goto other", "meta l4proto, th dport, @th,96,24, gotoother"},
		{"inet", "icmpv6 type nd-redirect drop", "meta nfproto, meta l4proto, icmpv6 type, drop"},
		{"inet", "iifname lo iifgroup 1 oifname x meta mark 1 jump a", "iifname, iifgroup, oifname, meta mark, jumpa"},
		{"inet", "fib daddr type local jump hostports", "fib daddr type, jumphostports"},
		{"inet", "fib saddr type local accept", "fib saddr type, accept"},
		{"inet", "ct status dnat ct state established,related accept", "ct status, ct state, accept"},
		{"inet", "ip frag-off & 16383 != 0 drop", "meta nfproto, ?, drop"},
		{"inet", "dnat ip to ip daddr . meta l4proto . th dport map @m", "meta nfproto, ip daddr, nat"},
		{"ip", "masquerade", "accept"},
		{"inet", "ip saddr vmap @m", "meta nfproto, ip saddr"},
		{"inet", `iifname "a b" log prefix "no: " group 7 drop`, "iifname, drop"},
		{"inet", "counter limit rate over 10/second burst 20 packets goto other", "?, gotoother"},
		{"inet", "ct direction original accept", "ct direction, accept"},
		{"inet", "ct id @a drop", "ct id, drop"},
	} {
		if got := decode(t, c.family, c.rule); got != c.want {
			t.Errorf("%s: %q decodes as %q, want %q", c.family, c.rule, got, c.want)
		}
	}
}

// TestText reads compiled rules back. Rules of other kinds are errors.
func TestText(t *testing.T) {
	t.Parallel()
	read := func(rule string) (string, error) {
		exprs, err := Compile(Inet, rule)
		if err != nil {
			t.Fatal(err)
		}
		var p netlink.Buffer
		p.Bytes(unix.NFTA_RULE_EXPRESSIONS, exprs)
		return Text("inet", p)
	}
	for _, rule := range []string{
		"ct state established,related accept", "icmpv6 type @discovery accept", "icmpv6 type nd-redirect drop",
		"ip6 hoplimit 255 icmpv6 type @discovery accept", "ip6 hoplimit 1 ip6 daddr @multicast6 icmpv6 type @listeners accept", "ip saddr . ip daddr @self4 accept",
		"ip6 saddr . ip6 daddr @self6 accept", "ip6 daddr vmap @ingress6", "ip saddr @pods-4 meta l4proto tcp th dport 80 counter accept",
		"ip6 saddr @a ip6 daddr . meta l4proto . th dport @b goto c", "meta l4proto . th dport @ports counter jump x", "meta nfproto ipv4 counter drop",
		"counter limit rate over 10/second burst 20 packets goto unreported", "limit rate 7/second burst 1 packets return", `log prefix "a: b" group 5470 drop`,
		"log group 3", "ip daddr != 10.0.0.1 ip saddr != @x drop", "th dport != 5 return", "meta l4proto udp drop", "ct direction reply accept",
		"fib saddr type local accept", "fib daddr type local accept", "",
	} {
		if got, err := read(rule); got != rule || err != nil {
			t.Errorf("%q reads as %q (%v)", rule, got, err)
		}
	}
	for _, rule := range []string{"ip saddr 10.0.0.0/8 drop", "ct status dnat accept", "meta mark set 1", "ip frag-off & 16383 != 0 drop", "masquerade"} {
		if got, err := read(rule); err == nil {
			t.Errorf("%q reads as %q, want an error", rule, got)
		}
	}
}

// TestFieldTable checks that each field that a rule can load has a data type of its size.
func TestFieldTable(t *testing.T) {
	t.Parallel()
	for _, f := range fields {
		if f.typ == "" {
			continue
		}
		d, err := dataTypeByName(f.typ)
		if err != nil || f.load.expr == "payload" && d.size != int(f.load.size) {
			t.Errorf("%s: type %+v (%v), loads %d bytes", f.name, d, err, f.load.size)
		}
	}
}

func FuzzRule(f *testing.F) {
	f.Add("ip saddr @a jump b")
	f.Add("limit rate over 10/second burst 20 packets log prefix \"a b\" group 3")
	f.Add("dnat ip to ip daddr . meta l4proto . th dport map @m")
	f.Add("iifname != \"lo\" ip daddr 127.0.0.0/8 drop")
	f.Fuzz(func(_ *testing.T, rule string) { _, _ = Compile(Inet, rule) })
}

// FuzzReadRule checks that decoding any expressions ends, and that each step says something.
func FuzzReadRule(f *testing.F) {
	for _, text := range []string{
		"ip saddr 10.1.0.0/24 return", `iifname != "lo" ip daddr 127.0.0.0/8 drop`, "fib daddr type local jump hostports",
		"ct status dnat jump hostports-masquerade", "meta l4proto . ip daddr . th dport @hostports masquerade",
	} {
		exprs, err := Compile(Inet, text)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(exprs))
	}
	f.Fuzz(func(t *testing.T, exprs []byte) {
		var p netlink.Buffer
		p.Bytes(unix.NFTA_RULE_EXPRESSIONS, exprs)
		r := ParseRule(p, &Chain{Family: "inet", Table: "t"})
		for _, s := range r.Steps {
			if s.Field == "" && s.Verdict == "" {
				t.Errorf("an empty step: %+v", r)
			}
		}
		_, _ = Text("inet", p)
		ParseSetElement(exprs)
		ParseChain(append([]byte{1, 0, 0, 0}, exprs...))
	})
}

func FuzzReplies(f *testing.F) {
	f.Add(make([]byte, 64))
	for _, rule := range []string{"ip saddr @a jump b", "iifname != \"lo\" ip daddr 127.0.0.0/8 drop", "dnat ip to ip daddr . meta l4proto . th dport map @m"} {
		exprs, err := Compile(Inet, rule)
		if err != nil {
			f.Fatal(err)
		}
		b := Message("inet")
		b.Bytes(unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, exprs)
		f.Add([]byte(b))
	}
	f.Fuzz(func(_ *testing.T, p []byte) {
		ParseElements([][]byte{p})
		ParseComment(p)
		ParseSet(p)
		ParseSetElement(p)
		parseVerdict(p)
		for typ, interval := range map[string]bool{"ipv4_addr : verdict": false, "inet_proto . inet_service": true, "ipv6_addr": true} {
			set := codec(typ, interval)
			elements, _ := set.Parse([][]byte{p})
			for k := range elements {
				set.KeyText(k)
			}
		}
		if len(p) >= 4 {
			ParseRule(p[4:], ParseChain(p))
		}
	})
}
