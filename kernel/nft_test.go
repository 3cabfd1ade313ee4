package kernel_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
)

func part(what, name, text string) *kernel.NFT {
	return &kernel.NFT{Family: "inet", Table: "fairlead", Kind: what, Name: name, Text: text}
}

func grouped(what, name, text string) *kernel.NFT {
	n := part(what, name, text)
	n.Network, n.ChainGroup = "net", "net-4"
	return n
}

func element(o kernel.Owner, ip string) *kernel.Element {
	return &kernel.Element{Family: "inet", Table: "fairlead", Set: "masq-net", Type: "ipv4_addr", Key: ip, OwnerTag: o.Tag()}
}

func masquerade(ip string) kernel.Objects {
	return kernel.Objects{
		part("table", "", ""),
		part("chain", "postrouting", "type nat hook postrouting priority 105; policy accept"),
		grouped("set", "masq-net", "ipv4_addr"),
		grouped("chain", "masq-net", ""),
		grouped("rule", "masq-net", "ip daddr 10.1.0.0/16 return"),
		grouped("rule", "masq-net", "ip daddr != 224.0.0.0/4 masquerade"),
		grouped("rule", "postrouting", "ip saddr @masq-net jump masq-net"),
		element(owner, ip),
	}
}

// masqueraded returns a host with an attachment.
func masqueraded(t *testing.T) (*kernel.Engine, kernel.Objects) {
	t.Helper()
	kerneltest.Host(t)
	e, list := open(t, "", kernel.Options{}), masquerade("10.1.0.5")
	if err := e.Apply(list); err != nil {
		t.Fatal(err)
	}
	return e, list
}

func TestNFTApplyTwiceCheckRemove(t *testing.T) {
	t.Parallel()
	e, list := masqueraded(t)
	other := kernel.Owner{Network: "net", ContainerID: "c2", IfName: "eth0"}
	second := append(masquerade("10.1.0.6")[:7:7], element(other, "10.1.0.6"))
	if err := e.Apply(second); err != nil {
		t.Fatal(err)
	}
	if d, err := e.Compare(append(list, second...)); err != nil || len(d) > 0 {
		t.Fatalf("check: %v %v", d, err)
	}
	ruleset := kerneltest.Run(t, "nft", "list", "ruleset")
	if n := strings.Count(ruleset, "jump masq-net"); n != 1 {
		t.Errorf("%d jumps in\n%s", n, ruleset)
	}
	for _, c := range [][]string{
		{"nft", "delete", "element", "inet", "fairlead", "masq-net", "{ 10.1.0.5 }"},
		{"nft", "flush", "chain", "inet", "fairlead", "masq-net"},
	} {
		kerneltest.Run(t, c...)
	}
	d, _ := e.Compare(list)
	if len(d) != 3 {
		t.Errorf("three things are gone, the check says\n%s", words(d))
	}
	if err := e.Remove(list); err != nil {
		t.Fatal(err)
	}
	if s := kerneltest.Run(t, "nft", "list", "ruleset"); !strings.Contains(s, "masq-net") {
		t.Errorf("the second's set is gone:\n%s", s)
	}
	if err := e.Remove(second); err != nil {
		t.Fatal(err)
	}
	if s := kerneltest.Run(t, "nft", "list", "ruleset"); strings.Contains(s, "masq-net") || !strings.Contains(s, "postrouting") {
		t.Errorf("the emptied network stays, or the shared chain went:\n%s", s)
	}
}

// TestRemoveNextToForeignRule removes an attachment while an administrator's rule refers to its network's set. The set
// stays until the rule is gone.
func TestRemoveNextToForeignRule(t *testing.T) {
	t.Parallel()
	e, list := masqueraded(t)
	kerneltest.Run(t, "nft", "add", "rule", "inet", "fairlead", "postrouting", "ip", "saddr", "@masq-net", "counter")
	if err := e.Remove(list); err != nil {
		t.Error(err)
	}
	ruleset := kerneltest.Run(t, "nft", "list", "ruleset")
	if strings.Contains(ruleset, "10.1.0.5") || !strings.Contains(ruleset, "@masq-net counter") {
		t.Errorf("after the removal:\n%s", ruleset)
	}
	kerneltest.Run(t, "nft", "flush", "chain", "inet", "fairlead", "postrouting")
	if err := errors.Join(e.Apply(list), e.Remove(list)); err != nil {
		t.Fatal(err)
	}
	if s := kerneltest.Run(t, "nft", "list", "ruleset"); strings.Contains(s, "masq-net") {
		t.Errorf("the set stays when the rule is gone:\n%s", s)
	}
}

// TestRemoveLargeAttachment removes an attachment with so many elements that the kernel lists the set in several parts.
// The element of another attachment, in any part, keeps the set.
func TestRemoveLargeAttachment(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	e := open(t, "", kernel.Options{})
	other := kernel.Owner{Network: "net", ContainerID: "c2", IfName: "eth0"}
	for i := range 8 {
		large := masquerade("10.1.0.1")
		for n := range 100 {
			large = append(large, element(owner, fmt.Sprintf("10.1.1.%d", n)))
		}
		stays := fmt.Sprintf("10.1.2.%d", i)
		second := append(masquerade("")[:7:7], element(other, stays))
		if err := errors.Join(e.Apply(large), e.Apply(second), e.Remove(large)); err != nil {
			t.Fatal(err)
		}
		if d, err := e.Compare(second); err != nil || len(d) > 0 {
			t.Errorf("%s: after the removal of the other attachment: %v\n%s", stays, err, words(d))
		}
		if err := e.Remove(second); err != nil {
			t.Fatal(err)
		}
		if s := kerneltest.Run(t, "nft", "list", "ruleset"); strings.Contains(s, "masq-net") {
			t.Fatalf("%s: the empty set stays:\n%s", stays, s)
		}
	}
}

// TestListOfReorderedSet lists a set right after many elements were added. The kernel then moves them into a larger hash
// table, which changes their order between the parts of the list.
func TestListOfReorderedSet(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	e := open(t, "", kernel.Options{})
	list := masquerade("10.1.0.1")
	for n := range 1000 {
		list = append(list, element(owner, fmt.Sprintf("10.1.%d.%d", 1+n/250, n%250)))
	}
	for range 150 {
		if err := e.Apply(list); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			have, err := e.NFTElements(kernel.Element{Family: "inet", Table: "fairlead", Set: "masq-net", Type: "ipv4_addr"})
			keys := map[string]bool{}
			for _, x := range have {
				keys[x.Key] = true
			}
			if err != nil || len(keys) != 1001 || len(have) != len(keys) {
				t.Fatalf("the list of 1001 elements has %d, %d of them repeated: %v", len(have), len(have)-len(keys), err)
			}
		}
		if err := e.Remove(list); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRemoveEmptyGroupOfSeveral removes the last element of one group, while another group of the same list has more.
func TestRemoveEmptyGroupOfSeveral(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	e := open(t, "", kernel.Options{})
	second := &kernel.NFT{Family: "inet", Table: "fairlead", Kind: "set", Name: "masq-net6", Text: "ipv6_addr", Network: "net", ChainGroup: "net-6"}
	list := append(masquerade("10.1.0.5"), second,
		&kernel.Element{Family: "inet", Table: "fairlead", Set: "masq-net6", Type: "ipv6_addr", Key: "fd00::5", OwnerTag: owner.Tag()})
	other := kernel.Owner{Network: "net", ContainerID: "c2", IfName: "eth0"}
	if err := errors.Join(e.Apply(list), e.Apply(append(masquerade("10.1.0.6")[:7:7], element(other, "10.1.0.6")))); err != nil {
		t.Fatal(err)
	}
	if err := e.Remove(list); err != nil {
		t.Fatal(err)
	}
	if s := kerneltest.Run(t, "nft", "list", "ruleset"); strings.Contains(s, "masq-net6") || !strings.Contains(s, "10.1.0.6") {
		t.Errorf("after the removal:\n%s", s)
	}
}

// TestRemoveGroupTwice removes an attachment with two addresses of one subnet. Its list has the parts of their chain group
// twice.
func TestRemoveGroupTwice(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	e := open(t, "", kernel.Options{})
	list := append(masquerade("10.1.0.5"), masquerade("10.1.0.6")...)
	if err := errors.Join(e.Apply(list), e.Remove(list)); err != nil {
		t.Error(err)
	}
	if s := kerneltest.Run(t, "nft", "list", "ruleset"); strings.Contains(s, "masq-net") {
		t.Errorf("after the removal:\n%s", s)
	}
}

// TestRemoveElementTwice checks elements that a list has twice: they are removed, or passed on, once.
func TestRemoveElementTwice(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	e := open(t, "", kernel.Options{})
	twice := append(masquerade("10.1.0.5"), element(owner, "10.1.0.5"))
	second := kernel.Owner{Network: "net", ContainerID: owner.ContainerID, IfName: "eth1"}
	for _, wanted := range []kernel.Objects{nil, {element(second, "10.1.0.5")}} {
		if err := e.Apply(twice); err != nil {
			t.Fatal(err)
		}
		e.HandOver(wanted)
		if err := e.Remove(twice); err != nil {
			t.Error(err)
		}
		set := kerneltest.Run(t, "nft", "list", "table", "inet", "fairlead")
		if strings.Contains(set, owner.Tag()) || strings.Contains(set, second.Tag()) != (wanted != nil) {
			t.Errorf("passed to %v:\n%s", wanted, set)
		}
	}
}

// TestRepairInOneTransaction repairs a ruleset that somebody changed. All changes are one transaction, so that no packet
// meets a chain without some of its rules.
func TestRepairInOneTransaction(t *testing.T) {
	t.Parallel()
	const masquerading = "inet fairlead masq-net "
	for name, damage := range map[string]string{
		"first rule of two": "handle=$(nft -a list chain " + masquerading + "| sed -n 's/.* return .*handle //p'); " +
			"nft delete rule " + masquerading + "handle $handle",
		"policy of a chain":           "nft add chain inet fairlead postrouting '{ policy drop; }'",
		"priority of a chain":         "nft 'delete chain inet fairlead postrouting; add chain inet fairlead postrouting { type nat hook postrouting priority 7; }'",
		"type of a set":               "nft 'flush table inet fairlead; delete set " + masquerading + "; add set " + masquerading + "{ type ipv6_addr; }'",
		"all rules":                   "nft flush table inet fairlead",
		"the table":                   "nft delete table inet fairlead",
		"an element, and a last rule": "nft 'flush chain inet fairlead postrouting; flush set " + masquerading + "'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, list := masqueraded(t)
			want := sortedLines(kerneltest.Run(t, "nft", "list", "ruleset"))
			e.DiscardUndo()
			kerneltest.Run(t, "sh", "-c", damage)
			before, err := e.Generation()
			if err != nil {
				t.Fatal(err)
			}
			done, err := e.Repair(list)
			if err != nil || len(done) == 0 {
				t.Errorf("repair: %v %v", done, err)
			}
			for _, r := range done {
				if r.Err != nil {
					t.Errorf("%s: %v", r.Object, r.Err)
				}
			}
			if after, err := e.Generation(); err != nil || after != before+1 {
				t.Errorf("%d transactions (%v), want 1", after-before, err)
			}
			if have := sortedLines(kerneltest.Run(t, "nft", "list", "ruleset")); have != want {
				t.Errorf("after the repair:\n%s\nbefore the damage:\n%s", have, want)
			}
		})
	}
}

// sortedLines makes rulesets comparable, because a chain that was added again is the last one.
func sortedLines(s string) string {
	lines := strings.Split(s, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestRulesReadBack checks that nft lists each rule as it was written.
func TestRulesReadBack(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	rules := []string{
		"ip saddr @a4 jump other",
		"ip6 saddr @a6 jump other",
		"ip daddr != 224.0.0.0/4 masquerade",
		"ip6 daddr fd00::/64 return",
		"ip saddr 10.1.0.0/16 ip daddr 10.1.0.0/16 masquerade",
		"fib daddr type local jump other",
		"ct status dnat jump other",
		"dnat ip to ip daddr . meta l4proto . th dport map @specific4",
		"meta nfproto ipv4 dnat ip to meta l4proto . th dport map @any4",
		"meta nfproto ipv6 dnat ip6 to meta l4proto . th dport map @any6",
		"meta l4proto . ip daddr . th dport != @snat4 return",
		"iifname != \"lo\" ip daddr 127.0.0.0/8 drop",
		"meta mark set 0x00000010",
		"counter accept",
		"ip saddr 10.1.0.9 ct state established,related accept",
		"iifname \"br0\" oifname != \"br0\" jump other",
		"oifname \"vx0\" tcp flags syn / syn,rst tcp option maxseg size set rt mtu",
		"tcp flags syn / syn,rst tcp option maxseg size set rt mtu",
		"iifgroup 1718353921 ip saddr @a4 fib daddr type local drop",
		"iifgroup != 1718353921 udp dport 8472 @th,96,24 0x12d goto other",
		"ip frag-off & 16383 != 0 goto other",
		"exthdr frag exists goto other",
	}
	list := kernel.Objects{
		part("table", "", ""), part("chain", "other", ""),
		part("set", "a4", "ipv4_addr"), part("set", "a6", "ipv6_addr"),
		part("map", "specific4", "ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service"),
		part("map", "any4", "inet_proto . inet_service : ipv4_addr . inet_service"),
		part("map", "any6", "inet_proto . inet_service : ipv6_addr . inet_service"),
		part("set", "snat4", "inet_proto . ipv4_addr . inet_service"),
	}
	for i, r := range rules {
		chain := fmt.Sprintf("c%d", i)
		hook := "type nat hook postrouting priority 105; policy accept"
		if strings.Contains(r, "dnat ip") || strings.HasPrefix(r, "fib") {
			hook = "type nat hook prerouting priority -95; policy accept"
		}
		if strings.HasPrefix(r, "iifgroup") {
			hook = "type filter hook prerouting priority -300; policy accept"
		}
		if strings.HasPrefix(r, "iifname") || strings.Contains(r, "maxseg") {
			hook = "type filter hook forward priority -150; policy accept"
		}
		list = append(list, part("chain", chain, hook), part("rule", chain, r))
	}
	e := open(t, "", kernel.Options{})
	if err := e.Apply(list); err != nil {
		t.Fatal(err)
	}
	ruleset := kerneltest.Run(t, "nft", "list", "ruleset")
	for _, r := range rules {
		r = strings.Replace(r, "counter", "counter packets 0 bytes 0", 1)
		if !strings.Contains(ruleset, "\t\t"+r+" comment") {
			t.Errorf("not printed as written: %s", r)
		}
	}
	if t.Failed() {
		t.Log(ruleset)
	}
}

// TestRulesOfFamiliesReadBack checks the same for other families, and that nft can load its own list again.
func TestRulesOfFamiliesReadBack(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	kerneltest.Needs(t, "nftables for bridges")
	hook := map[string]string{"bridge": "prerouting", "inet": "prerouting", "arp": "input"}
	rules := map[string][]string{
		"bridge": {
			"iifname . ether saddr != @macs drop", "meta protocol ip goto other", "meta protocol ip6 goto other", "meta protocol arp goto other",
			"iifname . ip saddr @v4 return", "iifname @ports ip saddr 0.0.0.0 udp sport 68 udp dport 67 return", "udp sport 547 drop",
			"icmpv6 type nd-router-advert drop", "ip6 nexthdr != ipv6-icmp icmpv6 type nd-neighbor-advert drop",
			"icmpv6 type nd-neighbor-advert iifname . @nh,384,128 != @nd drop", "iifname . ip6 saddr @v6 return", "ip6 saddr != :: drop",
			"ip6 nexthdr ipv6-icmp icmpv6 type nd-neighbor-solicit iifname . @nh,384,128 @nd return",
			"iifname . arp saddr ether != @macs drop", "iifname . arp saddr ip @v4 return", "iifname @ports arp saddr ip 0.0.0.0 return",
		},
		"arp": {"iifname . arp saddr ether != @macs drop", "iifname . arp saddr ip @v4 return", "iifname @ports arp saddr ip 0.0.0.0 return"},
	}
	rules["inet"] = rules["bridge"][:13]
	var list kernel.Objects
	for family, texts := range rules {
		add := func(what, name, text string) {
			list = append(list, &kernel.NFT{Family: family, Table: kernel.Table, Kind: what, Name: name, Text: text})
		}
		add("table", "", "")
		add("chain", "other", "")
		add("set", "ports", "ifname")
		add("set", "macs", "ifname . ether_addr")
		add("set", "v4", "ifname . ipv4_addr")
		if family != "arp" {
			add("set", "v6", "ifname . ipv6_addr")
			add("set", "nd", "ifname . @nh,384,128")
			list = append(list, &kernel.Element{Family: family, Table: kernel.Table, Set: "nd", Type: "ifname . @nh,384,128",
				Key: "veth0 . 0xfe800000000000000000000000000001", OwnerTag: owner.Tag()})
		}
		for i, r := range texts {
			chain := fmt.Sprintf("c%d", i)
			add("chain", chain, "type filter hook "+hook[family]+" priority -300; policy accept")
			add("rule", chain, r)
		}
	}
	e := open(t, "", kernel.Options{})
	if err := e.Apply(list); err != nil {
		t.Fatal(err)
	}
	if d, err := e.Compare(list); err != nil || len(d) > 0 {
		t.Errorf("check: %v %v", d, err)
	}
	for family, texts := range rules {
		listed := kerneltest.Run(t, "nft", "list", "table", family, kernel.Table)
		if !strings.Contains(listed, "type filter hook "+hook[family]+" ") {
			t.Errorf("%s: a chain is at another hook than %s:\n%s", family, hook[family], listed)
		}
		for _, r := range texts {
			if !strings.Contains(listed, "\t\t"+r+" comment") {
				t.Errorf("%s: not printed as written: %s", family, r)
			}
		}
		file := filepath.Join(t.TempDir(), "list")
		if err := os.WriteFile(file, []byte(listed), 0o600); err != nil {
			t.Fatal(err)
		}
		kerneltest.Run(t, "nft", "delete", "table", family, kernel.Table)
		kerneltest.Run(t, "nft", "-f", file)
		if again := kerneltest.Run(t, "nft", "list", "table", family, kernel.Table); again != listed {
			t.Errorf("loaded again:\n%s\nwas\n%s", again, listed)
		}
	}
	if err := e.RemoveTagged(owner.Owns); err != nil {
		t.Fatal(err)
	}
	if s := kerneltest.Run(t, "nft", "list", "ruleset"); strings.Contains(s, owner.Tag()) {
		t.Errorf("left:\n%s", s)
	}
}

// TestRemoveTaggedWithUnknownSetType adds a set of a type that Fairlead does not use to its table, as an administrator
// may. Dead owners' elements in the other sets are still removed.
func TestRemoveTaggedWithUnknownSetType(t *testing.T) {
	t.Parallel()
	e, _ := masqueraded(t)
	kerneltest.Run(t, "nft", "add", "set", "inet", kernel.Table, "admin", "{ type inet_service . ct_state; }")
	if err := e.RemoveTagged(owner.Owns); err != nil {
		t.Error(err)
	}
	if s := kerneltest.Run(t, "nft", "list", "ruleset"); strings.Contains(s, owner.Tag()) || !strings.Contains(s, "set admin") {
		t.Errorf("want the administrator's set and no element of the dead owner:\n%s", s)
	}
}

// TestRuleWithoutModule applies a rule that the kernel rejects like one whose module it lacks.
func TestRuleWithoutModule(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	err := open(t, "", kernel.Options{}).Apply(append(masquerade("10.1.0.5"), part("rule", "postrouting", "jump nosuch")))
	if err == nil || !strings.Contains(err.Error(), "jump nosuch: no such file or directory: the kernel may lack a module of nftables for this rule") {
		t.Error(err)
	}
}

func TestElementTaken(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	if err := open(t, "", kernel.Options{}).Apply(masquerade("10.1.0.5")); err != nil {
		t.Fatal(err)
	}
	other := kernel.Owner{Network: "net", ContainerID: "c2", IfName: "eth0"}
	mine := append(masquerade("")[:7:7], element(other, "10.1.0.5"))

	var taken *kernel.TakenError
	err := open(t, "", kernel.Options{}).Apply(mine)
	if !errors.As(err, &taken) || taken.OwnerTag != owner.Tag() || !errors.Is(err, unix.EEXIST) {
		t.Errorf("a living owner: %v", err)
	}
	dead := kernel.Options{Alive: func(tag string) bool { return tag != owner.Tag() }}
	if err := open(t, "", dead).Apply(mine); err != nil {
		t.Errorf("a dead owner: %v", err)
	}
	e := open(t, "", kernel.Options{})
	if err := e.Remove(kernel.Objects{element(owner, "10.1.0.5")}); err != nil {
		t.Error(err)
	}
	if d, err := e.Compare(mine); err != nil || len(d) > 0 {
		t.Errorf("DEL of the former owner took the element of the new one: %v %v", d, err)
	}
}

// TestElementOfSameContainer checks that the second attachment of a container accepts an element of the first, and does
// not remove it.
func TestElementOfSameContainer(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	first := masquerade("10.1.0.5")
	if err := open(t, "", kernel.Options{}).Apply(first); err != nil {
		t.Fatal(err)
	}
	second := kernel.Owner{Network: "net", ContainerID: owner.ContainerID, IfName: "eth1"}
	mine := append(masquerade("")[:7:7], element(second, "10.1.0.5"), element(second, "10.1.0.6"))
	e := open(t, "", kernel.Options{})
	if err := e.Apply(mine); err != nil {
		t.Fatal(err)
	}
	for _, list := range []kernel.Objects{first, mine} {
		if d, err := e.Compare(list); err != nil || len(d) > 0 {
			t.Errorf("check: %v %v", d, err)
		}
	}
	if err := e.Remove(mine[7:]); err != nil {
		t.Error(err)
	}
	if d, err := e.Compare(first); err != nil || len(d) > 0 {
		t.Errorf("the second took the first one's element: %v %v", d, err)
	}
	// The first attachment goes: the second one gets the element that both want.
	if err := e.Apply(mine); err != nil {
		t.Fatal(err)
	}
	e.HandOver(mine)
	if err := e.Remove(first); err != nil {
		t.Error(err)
	}
	if set := kerneltest.Run(t, "nft", "list", "table", "inet", "fairlead"); !strings.Contains(set, second.Tag()) || strings.Contains(set, owner.Tag()) {
		t.Errorf("the second has not inherited:\n%s", set)
	}
	if err := open(t, "", kernel.Options{}).Remove(mine); err != nil {
		t.Error(err)
	}
	if set := kerneltest.Run(t, "nft", "list", "table", "inet", "fairlead"); strings.Contains(set, "10.1.0.5") {
		t.Errorf("left:\n%s", set)
	}
}

// TestConcurrentNFT applies many attachments at once to an empty ruleset: each rule exists once, each element exists,
// and everything is gone at the end.
func TestConcurrentNFT(t *testing.T) {
	t.Parallel()
	const n = 16
	kerneltest.Host(t)
	ns, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	lists := make([]kernel.Objects, n)
	for i := range lists {
		o := kernel.Owner{Network: "net", ContainerID: fmt.Sprint(i), IfName: "eth0"}
		lists[i] = append(masquerade("")[:7:7], element(o, fmt.Sprintf("10.1.0.%d", i+2)))
	}
	all := func(do func(*kernel.Engine, kernel.Objects) error) {
		var wg sync.WaitGroup
		for _, l := range lists {
			wg.Go(func() {
				err := ns.Do(func() error {
					e, err := kernel.Open(nil, kernel.Options{})
					if err != nil {
						return err
					}
					defer e.Close()
					return do(e, l)
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	all((*kernel.Engine).Apply)
	ruleset := kerneltest.Run(t, "nft", "list", "ruleset")
	if strings.Count(ruleset, "jump masq-net") != 1 || strings.Count(ruleset, "fairlead net ") < n {
		t.Errorf("after %d at once:\n%s", n, ruleset)
	}
	all((*kernel.Engine).Remove)
	if s := kerneltest.Run(t, "nft", "list", "ruleset"); strings.Contains(s, "masq-net") {
		t.Errorf("left:\n%s", s)
	}
}
