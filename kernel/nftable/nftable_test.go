package nftable_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/nft"
	"github.com/fairlead/fairlead/kernel/nftable"
)

const forward = "type filter hook forward priority -10"

func open(t testing.TB) *nftable.Programmer {
	t.Helper()
	p, err := nftable.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// sync writes a table and returns what was different.
func sync(t testing.TB, p *nftable.Programmer, want *nftable.Table) []string {
	t.Helper()
	found, err := p.Sync(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// rounds returns how often a test repeats something. Virtual machines emulate the processor, and repeat it less.
func rounds(n int) int {
	if os.Getenv("FAIRLEAD_SLOW") != "" {
		return max(n/10, 1)
	}
	return n
}

// script returns the table as nft(8) reads it.
func script(t *nftable.Table) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table %s %s {\n", t.Family, t.Name)
	for _, name := range slices.Sorted(maps.Keys(t.Sets)) {
		s := t.Sets[name]
		kind, typ := "set", "type"
		if strings.Contains(s.Type, " : ") {
			kind = "map"
		}
		if nft.IsTypeof(s.Type) {
			typ = "typeof"
		}
		fmt.Fprintf(&b, "%s %s { %s %s; ", kind, name, typ, s.Type)
		if s.Interval {
			b.WriteString("flags interval; ")
		}
		var elements []string
		for key, value := range s.Elements {
			if value != "" {
				key += " : " + value
			}
			elements = append(elements, key)
		}
		if len(elements) > 0 {
			fmt.Fprintf(&b, "elements = { %s }; ", strings.Join(elements, ", "))
		}
		b.WriteString("}\n")
	}
	for _, name := range slices.Sorted(maps.Keys(t.Chains)) {
		fmt.Fprintf(&b, "chain %s {\n", name)
		if hook := t.Chains[name].Hook; hook != "" {
			fmt.Fprintf(&b, "%s;\n", hook)
		}
		for _, r := range t.Chains[name].Rules {
			b.WriteString(r.Text)
			if r.Comment != "" {
				fmt.Fprintf(&b, " comment %q", r.Comment)
			}
			b.WriteString("\n")
		}
		b.WriteString("}\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// load gives a script to nft in a namespace.
func load(t testing.TB, netns, text string) {
	t.Helper()
	kerneltest.In(t, netns, "nft", "-f", scriptFile(t, text))
}

var elementList = regexp.MustCompile(`(?s)elements = \{(.*?)\}`)

// scriptFile writes a script to a file.
func scriptFile(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// blocks returns nft's list of a table with its sets, chains and elements sorted. While the kernel resizes a hash table, a
// list of it may have an element twice: rhashtable_walk_start in lib/rhashtable.c.
func blocks(list string) string {
	list = elementList.ReplaceAllStringFunc(list, func(s string) string {
		elements := strings.Split(elementList.FindStringSubmatch(s)[1], ",")
		for i := range elements {
			elements[i] = strings.TrimSpace(elements[i])
		}
		slices.Sort(elements)
		return strings.Join(slices.Compact(elements), "\n")
	})
	_, body, _ := strings.Cut(strings.TrimSpace(list), "{\n")
	parts := strings.Split(strings.TrimSuffix(body, "}"), "\t}\n")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	slices.Sort(parts)
	return strings.Join(parts, "\n")
}

func listed(t testing.TB, netns string, table *nftable.Table) string {
	t.Helper()
	argv := []string{"nft", "list", "table", table.Family, table.Name}
	if netns == "" {
		return blocks(kerneltest.Run(t, argv...))
	}
	return blocks(kerneltest.In(t, netns, argv...))
}

// everything is a table with all kinds of sets, elements and rules that policy uses.
func everything() *nftable.Table {
	t := nftable.New("inet", "fairlead-policy")
	set := func(name, typ string, interval bool, elements ...string) {
		s := &nftable.Set{Type: typ, Interval: interval, Elements: map[string]string{}}
		for _, e := range elements {
			key, value, _ := strings.Cut(e, " : ")
			s.Elements[key] = value
		}
		t.Sets[name] = s
	}
	set("pods4", "ipv4_addr", false, "10.1.0.5", "10.1.0.6")
	set("pods6", "ipv6_addr", false, "fd00::5")
	set("blocks4", "ipv4_addr", true, "0.0.0.0-0.255.255.255", "10.0.0.0-10.0.0.255", "10.0.1.0-10.0.1.9", "10.0.5.1", "250.0.0.0-255.255.255.255")
	set("blocks6", "ipv6_addr", true, "fd00::-fd00::ff", "fd00::1:0-fd00::1:1", "ff00::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
	set("none4", "ipv4_addr", true)
	set("high4", "ipv4_addr", true, "128.0.0.0-255.255.255.255")
	set("ports", "inet_proto . inet_service", true, "tcp . 80-90", "udp . 53", "sctp . 0-65535", "tcp . 443")
	set("named4", "ipv4_addr . inet_proto . inet_service", false, "10.1.0.5 . tcp . 8080")
	set("named6", "ipv6_addr . inet_proto . inet_service", false, "fd00::5 . udp . 53")
	set("pairs4", "ipv4_addr . ipv4_addr", false, "10.1.0.5 . 10.1.0.1")
	set("pairs6", "ipv6_addr . ipv6_addr", false, "fd00::5 . fd00::1")
	set("neighbour", "icmpv6_type", false, "nd-router-solicit", "nd-neighbor-solicit", "nd-neighbor-advert", "mld2-listener-report")
	set("connections", "ct id", false, "5", "4294967295")
	set("links", "ifname", false, "eth0", "veth1")
	set("egress4", "ipv4_addr : verdict", false, "10.1.0.5 : goto profile", "10.1.0.6 : drop", "10.1.0.7 : accept")
	set("egress6", "ipv6_addr : verdict", false, "fd00::5 : jump profile")
	chain := func(name, hook string, rules ...string) {
		c := &nftable.Chain{Hook: hook}
		for i, r := range rules {
			c.Rules = append(c.Rules, nftable.Rule{Text: r})
			if i%2 == 1 {
				c.Rules[i].Comment = "rule of " + name
			}
		}
		t.Chains[name] = c
	}
	chain("forward", forward, "ct state established,related accept", "ct direction original jump profile",
		"ip saddr vmap @egress4", "ip6 saddr vmap @egress6", "icmpv6 type @neighbour accept", "icmpv6 type nd-router-advert accept",
		"icmpv6 type echo-request accept", "ip6 hoplimit 255 icmpv6 type @neighbour accept", "ip6 daddr @blocks6 ip6 hoplimit != 64 drop",
		"meta l4proto ipv6-icmp accept", "iifname \"eth0\" accept", "oifname @links goto dropped")
	chain("output", "type filter hook output priority 0", "oifname @links accept", "ct id @connections drop", "ct id 7 drop")
	chain("profile", "", "th dport 80 accept", "th dport != 80 drop", portRule,
		"ip daddr . meta l4proto . th dport @named4 accept", "ip6 daddr . meta l4proto . th dport @named6 accept",
		"ip saddr . ip daddr @pairs4 accept", "ip6 saddr . ip6 daddr @pairs6 accept", "ip saddr @pods4 ip daddr @blocks4 accept",
		"ip6 saddr @pods6 ip6 daddr @blocks6 accept", "ip daddr != @none4 ip daddr @high4 jump dropped", "goto dropped")
	chain("dropped", "", "counter", "log group 7", "counter limit rate over 10/second burst 20 packets drop", "log prefix \"denied by x: \" group 7",
		"limit rate 3/second burst 5 packets accept", "drop")
	chain("empty", "")
	return t
}

// portRule is a rule for which nft 1.0.6 adds a conversion that converts nothing. Newer kernels refuse that.
const portRule = "meta l4proto . th dport @ports accept"

// loadable returns the table of function everything, without portRule if nft cannot write it into this kernel.
func loadable(t *testing.T) *nftable.Table {
	t.Helper()
	table := everything()
	file := scriptFile(t, "table inet try { set ports { type inet_proto . inet_service; flags interval; }\nchain c { "+portRule+"\n}\n}")
	if kerneltest.Inside(kerneltest.Netns(t), exec.Command("nft", "-f", file).Run) != nil {
		profile := table.Chains["profile"]
		profile.Rules = slices.DeleteFunc(profile.Rules, func(r nftable.Rule) bool { return r.Text == portRule })
	}
	return table
}

// TestListsLikeNFT writes a table, and nft writes its text in another namespace. nft lists both equally, and also the
// table that it loads from the list of ours.
func TestListsLikeNFT(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	want := loadable(t)
	p := open(t)
	sync(t, p, want)
	ours := listed(t, "", want)
	other := kerneltest.Netns(t)
	load(t, other, script(want))
	if d := kerneltest.Diff(ours, listed(t, other, want)); d != "" {
		t.Errorf("our table (-) and nft's (+):\n%s", d)
	}
	again := kerneltest.Netns(t)
	load(t, again, kerneltest.Run(t, "nft", "list", "table", want.Family, want.Name))
	if d := kerneltest.Diff(ours, listed(t, again, want)); d != "" {
		t.Errorf("our table (-) and what nft loads from its list (+):\n%s", d)
	}
	if found := sync(t, p, want); found != nil {
		t.Errorf("the same table differs: %q", found)
	}
}

// TestSyncAcceptsWhatNFTWrote checks that Sync finds no difference in a table that nft wrote, except in portRule.
func TestSyncAcceptsWhatNFTWrote(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	want := loadable(t)
	kerneltest.Run(t, "nft", "-f", scriptFile(t, script(want)))
	p := open(t)
	found := sync(t, p, want)
	if len(found) > 1 || len(found) == 1 && found[0] != fmt.Sprintf("chain profile: rule 3 is not %q", portRule) {
		t.Errorf("found %q", found)
	}
	if found := sync(t, p, want); found != nil {
		t.Errorf("after the repair: %q", found)
	}
}

// TestElements reads sets back from the kernel.
func TestElements(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	want, p := everything(), open(t)
	if _, err := p.Elements(want, "pods4"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the table: %v", err)
	}
	sync(t, p, want)
	for name, s := range want.Sets {
		if got, err := p.Elements(want, name); err != nil || !maps.Equal(got, s.Elements) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, s.Elements)
		}
	}
	kerneltest.Run(t, "nft", "flush chain inet fairlead-policy profile; delete set inet fairlead-policy pairs4")
	if _, err := p.Elements(want, "pairs4"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the set: %v", err)
	}
}
