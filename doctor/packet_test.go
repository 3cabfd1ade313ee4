package doctor

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/nft"
)

// Constants of these tests.
var (
	bridgeLink = &kernel.LinkInfo{Index: 3, Name: "cni0", Kind: "bridge", MAC: "02:00:00:00:00:01", MTU: 1500, Up: true, Carrier: true}
	uplink     = &kernel.LinkInfo{Index: 2, Name: "up0", MTU: 1500, Up: true, Carrier: true}
	web        = netip.MustParseAddr("10.1.0.2")
)

func ifname(s string) []byte { return []byte(s) }

func bytesOf(s string) []byte { return netip.MustParseAddr(s).AsSlice() }

func number32(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// TestCompare evaluates single comparisons on a TCP packet from the container web.
func TestCompare(t *testing.T) {
	t.Parallel()
	p := packet{in: bridgeLink, out: uplink, src: web, proto: 6, state: ctNew}
	sets := map[string]*nft.Set{
		"plain": {Elements: []nft.SetElement{{Key: bytesOf("10.1.0.9")}, {Key: bytesOf("10.1.0.2"), Verdict: "drop"}}},
		"ranges": {Intervals: true, Elements: []nft.SetElement{
			{Key: bytesOf("0.0.0.0"), End: true}, {Key: bytesOf("10.1.0.0")}, {Key: bytesOf("10.1.1.0"), End: true}, {Key: bytesOf("10.3.0.0")}, {Key: bytesOf("10.4.0.0"), End: true}}},
		"after":   {Intervals: true, Elements: []nft.SetElement{{Key: bytesOf("10.0.0.0")}, {Key: bytesOf("10.1.0.0"), End: true}}},
		"unknown": {Unknown: true},
		"longer":  {Elements: []nft.SetElement{{Key: make([]byte, 8)}}},
	}
	for name, tt := range map[string]struct {
		step nft.Step
		want answer
	}{
		"source":             {nft.Step{Field: "ip saddr", Value: bytesOf("10.1.0.2")}, yes},
		"another source":     {nft.Step{Field: "ip saddr", Value: bytesOf("10.1.0.3")}, no},
		"not another":        {nft.Step{Field: "ip saddr", Op: nft.CmpNotEqual, Value: bytesOf("10.1.0.3")}, yes},
		"of a subnet":        {nft.Step{Field: "ip saddr", Mask: []byte{255, 255, 0, 0}, Value: bytesOf("10.1.0.0")}, yes},
		"by whole bytes":     {nft.Step{Field: "ip saddr", Value: []byte{10, 1}}, yes},
		"of another subnet":  {nft.Step{Field: "ip saddr", Mask: []byte{255, 255, 0, 0}, Value: bytesOf("10.2.0.0")}, no},
		"destination":        {nft.Step{Field: "ip daddr", Value: bytesOf("192.0.2.1")}, maybe},
		"the other family":   {nft.Step{Field: "ip6 saddr", Value: bytesOf("fd00::1")}, no},
		"by family":          {nft.Step{Field: "meta nfproto", Value: []byte{kernel.IPv4}}, yes},
		"interface":          {nft.Step{Field: "iifname", Value: ifname("cni0\x00")}, yes},
		"names that begin":   {nft.Step{Field: "iifname", Value: ifname("cn")}, yes},
		"other interface":    {nft.Step{Field: "oifname", Value: ifname("docker0\x00")}, no},
		"by number":          {nft.Step{Field: "oif", Value: number32(2)}, yes},
		"protocol":           {nft.Step{Field: "meta l4proto", Value: []byte{6}}, yes},
		"another protocol":   {nft.Step{Field: "meta l4proto", Value: []byte{17}}, no},
		"port":               {nft.Step{Field: "th dport", Value: []byte{0, 80}}, maybe},
		"state":              {nft.Step{Field: "ct state", Mask: number32(ctNew), Op: nft.CmpNotEqual, Value: number32(0)}, yes},
		"another state":      {nft.Step{Field: "ct state", Mask: number32(ctEstablished), Op: nft.CmpNotEqual, Value: number32(0)}, no},
		"status":             {nft.Step{Field: "ct status", Mask: number32(ctDNATed), Op: nft.CmpNotEqual, Value: number32(0)}, no},
		"iptables' state":    {nft.Step{Field: nft.FieldCTState, Mask: number32(ctNew | nft.XTStateDNAT), Op: nft.CmpNotEqual, Value: number32(0)}, yes},
		"iptables' DNAT":     {nft.Step{Field: nft.FieldCTState, Mask: number32(nft.XTStateDNAT), Op: nft.CmpNotEqual, Value: number32(0)}, no},
		"iptables' LOCAL":    {nft.Step{Field: nft.FieldDstType, Mask: number32(1 << localType), Op: nft.CmpNotEqual, Value: number32(0)}, no},
		"what nobody knows":  {nft.Step{Field: "?"}, maybe},
		"in a set":           {nft.Step{Field: "ip saddr", Set: "plain"}, yes},
		"not in a set":       {nft.Step{Field: "ip saddr", Set: "plain", Not: true}, no},
		"in a range":         {nft.Step{Field: "ip saddr", Set: "ranges"}, yes},
		"after a range":      {nft.Step{Field: "ip saddr", Set: "after"}, no},
		"in an unknown set":  {nft.Step{Field: "ip saddr", Set: "unknown"}, maybe},
		"in a set of longer": {nft.Step{Field: "ip saddr", Set: "longer"}, maybe},
	} {
		if got, _ := p.compare(tt.step, sets); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

func rule(steps ...nft.Step) nft.Rule { return nft.Rule{Handle: 7, Steps: steps} }

func do(verdict string) nft.Step { return nft.Step{Verdict: verdict} }

// TestForwardChainVerdict evaluates forward chains whose policy is drop or accept.
func TestForwardChainVerdict(t *testing.T) {
	t.Parallel()
	mine := nft.Step{Field: "ip saddr", Value: bytesOf("10.1.0.2")}
	other := nft.Step{Field: "ip saddr", Value: bytesOf("10.1.0.3")}
	unknown := nft.Step{Field: "?"}
	jump := nft.Step{Verdict: "jump", Chain: "inner"}
	leap := nft.Step{Verdict: "goto", Chain: "inner"}
	for name, tt := range map[string]struct {
		policyDrop  bool
		rules       []nft.Rule
		inner       []nft.Rule
		drops, rule bool
	}{
		"nothing":                     {},
		"policy":                      {policyDrop: true, drops: true},
		"accepted before the policy":  {policyDrop: true, rules: []nft.Rule{rule(mine, do("accept"))}},
		"another accepted":            {policyDrop: true, rules: []nft.Rule{rule(other, do("accept"))}, drops: true},
		"maybe accepted":              {policyDrop: true, rules: []nft.Rule{rule(unknown, do("accept"))}},
		"dropped":                     {rules: []nft.Rule{rule(mine, do("drop"))}, drops: true, rule: true},
		"another dropped":             {rules: []nft.Rule{rule(other, do("drop"))}},
		"maybe dropped":               {rules: []nft.Rule{rule(unknown, do("drop"))}},
		"accepted, then dropped":      {rules: []nft.Rule{rule(mine, do("accept")), rule(do("drop"))}},
		"maybe accepted, dropped":     {rules: []nft.Rule{rule(unknown, do("accept")), rule(do("drop"))}},
		"dropped in a jump":           {rules: []nft.Rule{rule(mine, jump)}, inner: []nft.Rule{rule(do("drop"))}, drops: true, rule: true},
		"returned from a jump":        {rules: []nft.Rule{rule(jump), rule(do("drop"))}, inner: []nft.Rule{rule(mine, do("return")), rule(do("accept"))}, drops: true, rule: true},
		"accepted in a jump":          {policyDrop: true, rules: []nft.Rule{rule(jump)}, inner: []nft.Rule{rule(do("accept"))}},
		"maybe accepted in a jump":    {policyDrop: true, rules: []nft.Rule{rule(jump)}, inner: []nft.Rule{rule(unknown, do("accept"))}},
		"maybe jumped to an accept":   {policyDrop: true, rules: []nft.Rule{rule(unknown, jump)}, inner: []nft.Rule{rule(do("accept"))}},
		"maybe jumped to nothing":     {policyDrop: true, rules: []nft.Rule{rule(unknown, jump)}, drops: true},
		"gone to":                     {rules: []nft.Rule{rule(leap), rule(do("drop"))}, inner: []nft.Rule{rule(other, do("drop"))}},
		"jumped to what is not there": {rules: []nft.Rule{rule(nft.Step{Verdict: "jump", Chain: "none"}), rule(do("drop"))}},
		"to a program":                {rules: []nft.Rule{rule(mine, do("queue")), rule(do("drop"))}},
	} {
		base := &nft.Chain{Family: "inet", Table: "other", Name: "f", Type: "filter", Hook: "forward", Drop: tt.policyDrop, Rules: tt.rules}
		r := &nft.Ruleset{Chains: []*nft.Chain{base, {Family: "inet", Table: "other", Name: "inner", Rules: tt.inner}}}
		at := pass(r, "forward", packet{in: bridgeLink, out: uplink, src: web, state: ctNew})
		if (at != nil) != tt.drops || at != nil && (at.rule != nil) != tt.rule {
			t.Errorf("%s: %+v, want drop %v, by a rule %v", name, at, tt.drops, tt.rule)
		}
	}
}

// TestCircularJumpsEnd: rules that jump in a circle, which the kernel rejects, do not loop here.
func TestCircularJumpsEnd(t *testing.T) {
	t.Parallel()
	c := &nft.Chain{Family: "ip", Table: "t", Name: "c", Type: "filter", Hook: "forward", Drop: true, Rules: []nft.Rule{rule(nft.Step{Verdict: "jump", Chain: "c"})}}
	if at := pass(&nft.Ruleset{Chains: []*nft.Chain{c}}, "forward", packet{src: web}); at != nil {
		t.Errorf("%+v", at)
	}
}
