package doctor

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/kernel"
)

// constants of these tests
var (
	bridgeLink = &kernel.LinkInfo{Index: 3, Name: "cni0", Kind: "bridge", MAC: "02:00:00:00:00:01", MTU: 1500, Up: true, Carrier: true}
	uplink     = &kernel.LinkInfo{Index: 2, Name: "up0", MTU: 1500, Up: true, Carrier: true}
	web        = netip.MustParseAddr("10.1.0.2")
)

func ifname(s string) []byte { return []byte(s) }

func bytesOf(s string) []byte { return netip.MustParseAddr(s).AsSlice() }

func number32(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// What a comparison says of a packet from the container web to somewhere by TCP.
func TestCompare(t *testing.T) {
	t.Parallel()
	p := packet{in: bridgeLink, out: uplink, src: web, proto: 6, state: ctNew}
	sets := map[string]*kernel.FilterSet{
		"plain": {Elements: []kernel.FilterElement{{Key: bytesOf("10.1.0.9")}, {Key: bytesOf("10.1.0.2"), Verdict: "drop"}}},
		"ranges": {Intervals: true, Elements: []kernel.FilterElement{
			{Key: bytesOf("0.0.0.0"), End: true}, {Key: bytesOf("10.1.0.0")}, {Key: bytesOf("10.1.1.0"), End: true}, {Key: bytesOf("10.3.0.0")}, {Key: bytesOf("10.4.0.0"), End: true}}},
		"after":   {Intervals: true, Elements: []kernel.FilterElement{{Key: bytesOf("10.0.0.0")}, {Key: bytesOf("10.1.0.0"), End: true}}},
		"unknown": {Unknown: true},
		"longer":  {Elements: []kernel.FilterElement{{Key: make([]byte, 8)}}},
	}
	for name, tt := range map[string]struct {
		step kernel.Step
		want answer
	}{
		"source":             {kernel.Step{Field: "ip saddr", Value: bytesOf("10.1.0.2")}, yes},
		"another source":     {kernel.Step{Field: "ip saddr", Value: bytesOf("10.1.0.3")}, no},
		"not another":        {kernel.Step{Field: "ip saddr", Op: kernel.CmpNotEqual, Value: bytesOf("10.1.0.3")}, yes},
		"of a subnet":        {kernel.Step{Field: "ip saddr", Mask: []byte{255, 255, 0, 0}, Value: bytesOf("10.1.0.0")}, yes},
		"by whole bytes":     {kernel.Step{Field: "ip saddr", Value: []byte{10, 1}}, yes},
		"of another subnet":  {kernel.Step{Field: "ip saddr", Mask: []byte{255, 255, 0, 0}, Value: bytesOf("10.2.0.0")}, no},
		"destination":        {kernel.Step{Field: "ip daddr", Value: bytesOf("192.0.2.1")}, maybe},
		"the other family":   {kernel.Step{Field: "ip6 saddr", Value: bytesOf("fd00::1")}, no},
		"by family":          {kernel.Step{Field: "nfproto", Value: []byte{kernel.IPv4}}, yes},
		"interface":          {kernel.Step{Field: "iifname", Value: ifname("cni0\x00")}, yes},
		"names that begin":   {kernel.Step{Field: "iifname", Value: ifname("cn")}, yes},
		"other interface":    {kernel.Step{Field: "oifname", Value: ifname("docker0\x00")}, no},
		"by number":          {kernel.Step{Field: "oif", Value: number32(2)}, yes},
		"protocol":           {kernel.Step{Field: "l4proto", Value: []byte{6}}, yes},
		"another protocol":   {kernel.Step{Field: "l4proto", Value: []byte{17}}, no},
		"port":               {kernel.Step{Field: "dport", Value: []byte{0, 80}}, maybe},
		"state":              {kernel.Step{Field: "ct state", Mask: number32(ctNew), Op: kernel.CmpNotEqual, Value: number32(0)}, yes},
		"another state":      {kernel.Step{Field: "ct state", Mask: number32(ctEstablished), Op: kernel.CmpNotEqual, Value: number32(0)}, no},
		"status":             {kernel.Step{Field: "ct status", Mask: number32(ctDNATed), Op: kernel.CmpNotEqual, Value: number32(0)}, no},
		"iptables' state":    {kernel.Step{Field: kernel.FieldCTState, Mask: number32(ctNew | kernel.XTStateDNAT), Op: kernel.CmpNotEqual, Value: number32(0)}, yes},
		"iptables' DNAT":     {kernel.Step{Field: kernel.FieldCTState, Mask: number32(kernel.XTStateDNAT), Op: kernel.CmpNotEqual, Value: number32(0)}, no},
		"iptables' LOCAL":    {kernel.Step{Field: kernel.FieldDstType, Mask: number32(1 << localType), Op: kernel.CmpNotEqual, Value: number32(0)}, no},
		"what nobody knows":  {kernel.Step{Field: "?"}, maybe},
		"in a set":           {kernel.Step{Field: "ip saddr", Set: "plain"}, yes},
		"not in a set":       {kernel.Step{Field: "ip saddr", Set: "plain", Not: true}, no},
		"in a range":         {kernel.Step{Field: "ip saddr", Set: "ranges"}, yes},
		"after a range":      {kernel.Step{Field: "ip saddr", Set: "after"}, no},
		"in an unknown set":  {kernel.Step{Field: "ip saddr", Set: "unknown"}, maybe},
		"in a set of longer": {kernel.Step{Field: "ip saddr", Set: "longer"}, maybe},
	} {
		if got, _ := p.compare(tt.step, sets); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

func rule(steps ...kernel.Step) kernel.FilterRule { return kernel.FilterRule{Handle: 7, Steps: steps} }

func do(verdict string) kernel.Step { return kernel.Step{Verdict: verdict} }

// What becomes of a packet in a forward chain whose policy is to drop, or to accept.
func TestPass(t *testing.T) {
	t.Parallel()
	mine := kernel.Step{Field: "ip saddr", Value: bytesOf("10.1.0.2")}
	other := kernel.Step{Field: "ip saddr", Value: bytesOf("10.1.0.3")}
	unknown := kernel.Step{Field: "?"}
	jump := kernel.Step{Verdict: "jump", Chain: "inner"}
	leap := kernel.Step{Verdict: "goto", Chain: "inner"}
	for name, tt := range map[string]struct {
		policyDrop  bool
		rules       []kernel.FilterRule
		inner       []kernel.FilterRule
		drops, rule bool
	}{
		"nothing":                     {},
		"policy":                      {policyDrop: true, drops: true},
		"accepted before the policy":  {policyDrop: true, rules: []kernel.FilterRule{rule(mine, do("accept"))}},
		"another accepted":            {policyDrop: true, rules: []kernel.FilterRule{rule(other, do("accept"))}, drops: true},
		"maybe accepted":              {policyDrop: true, rules: []kernel.FilterRule{rule(unknown, do("accept"))}},
		"dropped":                     {rules: []kernel.FilterRule{rule(mine, do("drop"))}, drops: true, rule: true},
		"another dropped":             {rules: []kernel.FilterRule{rule(other, do("drop"))}},
		"maybe dropped":               {rules: []kernel.FilterRule{rule(unknown, do("drop"))}},
		"accepted, then dropped":      {rules: []kernel.FilterRule{rule(mine, do("accept")), rule(do("drop"))}},
		"maybe accepted, dropped":     {rules: []kernel.FilterRule{rule(unknown, do("accept")), rule(do("drop"))}},
		"dropped in a jump":           {rules: []kernel.FilterRule{rule(mine, jump)}, inner: []kernel.FilterRule{rule(do("drop"))}, drops: true, rule: true},
		"returned from a jump":        {rules: []kernel.FilterRule{rule(jump), rule(do("drop"))}, inner: []kernel.FilterRule{rule(mine, do("return")), rule(do("accept"))}, drops: true, rule: true},
		"accepted in a jump":          {policyDrop: true, rules: []kernel.FilterRule{rule(jump)}, inner: []kernel.FilterRule{rule(do("accept"))}},
		"maybe accepted in a jump":    {policyDrop: true, rules: []kernel.FilterRule{rule(jump)}, inner: []kernel.FilterRule{rule(unknown, do("accept"))}},
		"maybe jumped to an accept":   {policyDrop: true, rules: []kernel.FilterRule{rule(unknown, jump)}, inner: []kernel.FilterRule{rule(do("accept"))}},
		"maybe jumped to nothing":     {policyDrop: true, rules: []kernel.FilterRule{rule(unknown, jump)}, drops: true},
		"gone to":                     {rules: []kernel.FilterRule{rule(leap), rule(do("drop"))}, inner: []kernel.FilterRule{rule(other, do("drop"))}},
		"jumped to what is not there": {rules: []kernel.FilterRule{rule(kernel.Step{Verdict: "jump", Chain: "none"}), rule(do("drop"))}},
		"to a program":                {rules: []kernel.FilterRule{rule(mine, do("queue")), rule(do("drop"))}},
	} {
		base := &kernel.FilterChain{Family: "inet", Table: "other", Name: "f", Type: "filter", Hook: "forward", Drop: tt.policyDrop, Rules: tt.rules}
		r := &kernel.Ruleset{Chains: []*kernel.FilterChain{base, {Family: "inet", Table: "other", Name: "inner", Rules: tt.inner}}}
		at := pass(r, "forward", packet{in: bridgeLink, out: uplink, src: web, state: ctNew})
		if (at != nil) != tt.drops || at != nil && (at.rule != nil) != tt.rule {
			t.Errorf("%s: %+v, want drop %v, by a rule %v", name, at, tt.drops, tt.rule)
		}
	}
}

// Rules that jump in a circle, which the kernel refuses, end.
func TestPassEnds(t *testing.T) {
	t.Parallel()
	c := &kernel.FilterChain{Family: "ip", Table: "t", Name: "c", Type: "filter", Hook: "forward", Drop: true, Rules: []kernel.FilterRule{rule(kernel.Step{Verdict: "jump", Chain: "c"})}}
	if at := pass(&kernel.Ruleset{Chains: []*kernel.FilterChain{c}}, "forward", packet{src: web}); at != nil {
		t.Errorf("%+v", at)
	}
}
