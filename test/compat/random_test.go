package compat

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestRandomConfigurations changes configurations at random, a value here, a key
// there: what the reference accepts we accept, with the same results and effects,
// and what it refuses we refuse, but for the reasons of refused and accepted.
// FAIRLEAD_RANDOM is how many, FAIRLEAD_SEED the first: the same ones each time
// but where these say otherwise, as `make compat` does.
func TestRandomConfigurations(t *testing.T) {
	prepared(t)
	count := number(t, "FAIRLEAD_RANDOM", 40)
	seed := number(t, "FAIRLEAD_SEED", 1)
	pool := changeable()
	for i := range count {
		t.Run(strconv.Itoa(seed+i), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(seed+i), 0))
			k := pool[r.IntN(len(pool))]
			k.plugins = changed(r, k.plugins)
			compareRandom(t, k)
		})
	}
}

func number(t *testing.T, variable string, otherwise int) int {
	s := os.Getenv(variable)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func compareRandom(t *testing.T, k keyCase) {
	theirs, ours := k.record(t, side{}), k.record(t, side{ourPlugins: true})
	switch {
	case theirs.said == "" && ours.said == "":
		problems, _ := newPage().compare(k.name(), theirs.transcript, ours.transcript)
		for _, p := range problems {
			if !explained(effects(), p) {
				t.Error(p)
			}
		}
	case theirs.said == "" && !explained(refused(), ours.said):
		t.Errorf("the reference accepts it, we do not: %s", ours.said)
	case ours.said == "" && !explained(accepted(), theirs.said):
		t.Errorf("we accept it, the reference does not: %s", theirs.said)
	}
	if t.Failed() {
		t.Logf("%s: %s %s %s", k.name(), k.plugins, k.capArgs, k.cniArgs)
	}
}

// changeable are cases that run anywhere, and whose files stay in their own host.
func changeable() []keyCase {
	return slices.DeleteFunc(allKeys(), func(k keyCase) bool {
		wanted := slices.Contains([]string{"bridge", "ptp", "host-local", "static", "portmap", "bandwidth", "firewall", "sbr", "tuning"}, k.plugin)
		return !wanted || k.needs != "" || k.alone || strings.Contains(k.plugins, "dhcp") || !strings.Contains(k.plugins, "{")
	})
}

// changed is a list of plugins with one to three changes.
func changed(r *rand.Rand, plugins string) string {
	var list any
	d := json.NewDecoder(strings.NewReader("[" + plugins + "]"))
	d.UseNumber()
	if err := d.Decode(&list); err != nil {
		return plugins // broken on purpose
	}
	for range 1 + r.IntN(3) {
		change(r, list)
	}
	raw, _ := json.Marshal(list) // it was JSON
	return strings.TrimSuffix(strings.TrimPrefix(string(raw), "["), "]")
}

// change walks to a random place and changes it.
func change(r *rand.Rand, at any) {
	switch at := at.(type) {
	case []any:
		if len(at) == 0 {
			return
		}
		i := r.IntN(len(at))
		if r.IntN(3) > 0 {
			change(r, at[i])
		} else if _, object := at[i].(map[string]any); !object {
			at[i] = otherThan(r, at[i])
		}
	case map[string]any:
		changeKey(r, at)
	}
}

// fixed are keys that name programs and places outside the host.
func fixed() []string {
	return []string{"type", "dataDir", "resolvConf", "sysctl", "capabilities", "capability", "CNINetns"}
}

func changeKey(r *rand.Rand, at map[string]any) {
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(at)), func(k string) bool { return slices.Contains(fixed(), k) })
	if len(keys) == 0 {
		return
	}
	key := keys[r.IntN(len(keys))]
	_, object := at[key].(map[string]any)
	_, array := at[key].([]any)
	switch n := r.IntN(10); {
	case (object || array) && n < 6:
		change(r, at[key])
	case n < 7:
		at[key] = otherThan(r, at[key])
	case n == 7 && key != "ipam":
		delete(at, key)
	case n == 8:
		at["unknown"+key] = at[key]
	default:
		at[strings.ToUpper(key[:1])+key[1:]] = otherThan(r, at[key])
	}
}

// otherThan is another value, mostly of the same kind.
func otherThan(r *rand.Rand, was any) any {
	numbers := []any{0, 1, -1, 68, 1400, 1500, 65535, 65536, 70000, int64(4294967296), 1.5}
	words := []any{"", " ", "x", "10.1.0.1", "10.1.0.0/24", "10.1.0.9/24", "10.1.0.0/31", "10.1.0.0/33", "fd01::/64", "fd01::7/64", "::/0", "0.0.0.0/0", "::ffff:10.1.0.7/120",
		"010.1.0.1", "10.1.0.1%eth0", "02:00:00:00:00:09", "0200.0000.0009", "ff:ff:ff:ff:ff:ff", "nftables", "iptables", "true", strings.Repeat("a", 16), strings.Repeat("é", 40)}
	others := []any{nil, true, false, []any{}, map[string]any{}, "x", 7}
	kind := others
	if r.IntN(5) > 0 {
		switch was.(type) {
		case json.Number:
			kind = numbers
		case string:
			kind = words
		case bool:
			kind = []any{true, false}
		}
	}
	return kind[r.IntN(len(kind))]
}

// reason is why one side does what the other does not.
type reason struct{ words, why string }

// refused is what we refuse and the reference accepts, by our words.
func refused() []reason {
	return []reason{
		{`backend = .* want "nftables", "iptables" or "firewalld"`, "firewall takes any other word for no backend at all"},
		{`ipMasqBackend = .* want "nftables" or "iptables"`, "the same, and where ipMasq is off, too"},
		{`ipam\.addresses\[0\]\.(address|gateway) = .* want`, "static's addresses are not looked at where others come in their place"},
		{`(mtu|table) = (-1|0): want`, "bridge takes an MTU below 0 for none, sbr a table for one of 2^32"},
		{`ipam\.routes\[\d\]\.(mtu|advmss|priority|table|scope) = .*: want 0 to`, "numbers past the kernel's wrap, to none"},
		{`ipam\.gateway = .* is not in the subnet`, "the gateway would be unreachable"},
		{`is already taken by container`, "two rules for one port: the second container's never sees a packet"},
	}
}

// accepted is what we accept and the reference refuses, by its words.
func accepted() []reason {
	return []reason{
		{`via .* dev eth0 .*Scope: link.*: network is unreachable`, "a route of scope link gets the gateway of its address, which cannot be"},
		{`^(exit status 1: )?no plugin name provided`, "CHECK of a bridge without ipam, which ADD accepts"},
		{`Failed to find Gateway .* for interface`, "CHECK wants a default route where none was asked for"},
		{`Expected Route .* not found in routing table`, "CHECK looks in the main table only"},
		{`unknown protocol "" specified|No symbol type information`, "a mapping without a protocol is TCP's, by nftables in the reference, too"},
		{`Bridge interface \S+ Mac doesn't match`, "the hardware address of the reference's bridge without a gateway is its ports'"},
		{`if rate is set, burst must also be set`, "a burst has a default"},
		{`invalid CIDR address:\s*$`, "a null is a key that is not there, and Subnet is not subnet"},
		{`cannot unmarshal .* (field \.args\.cni|field Address\.ipam\.addresses\.Address) of type`, "Cni is not cni, nor Address address"},
		{`cannot unmarshal .* field BridgeArgs\.args\.cni\.mac of type`, "args.cni is not looked at where a capability comes in its place"},
		{`failed to add route \{Ifindex: .*: file exists`, "a route to the container's own subnet is there with its address"},
		{`nftables-specific options`, "without a backend, conditions in nftables' words choose nftables"},
		{`failed to add route '\{[0-9.]+ ffffff00\}`, "::ffff:10.1.0.0/120 is an IPv6 route, not an IPv4 one with a mask of IPv6's"},
		{`create (ifb )?qdisc: create qdisc: invalid argument`, "a burst of less than a byte: our bucket holds a frame whatever was asked for"},
	}
}

// effects are differences of results and effects, by the words of the problem.
func effects() []reason {
	return []reason{
		{`this side: route default via .* \{"mtu":`, "ptp sets the default route without the mtu that was asked for"},
		{`this side: qdisc tbf .* burst 1518b`, "a bucket smaller than a frame lets none through"},
		{`qdisc tbf .* rate 64bit burst .*\n.*qdisc tbf .* rate 64bit burst`, "the time that a bucket lasts, 275 s at the most, wraps in the reference, and in what tc shows of ours"},
		{`mark:\s+reference: 0x20/0x20\s+this side: none$`, "without a backend ours is nftables, which needs no mark"},
		{`qdisc tbf .* rate 4294Mbit burst`, "the reference counts a bucket in whole ticks, which a fast rate's is not"},
		{`namespace host:\s+reference: sysctl net/ipv4/conf/(\S+)/route_localnet:0\s+this side: sysctl net/ipv4/conf/\S+/route_localnet:1$`,
			"the reference finds the bridge by the container's gateway; without one a mapping of 127.0.0.1 does not work"},
	}
}

func explained(list []reason, said string) bool {
	return slices.ContainsFunc(list, func(r reason) bool { return regexp.MustCompile(r.words).MatchString(said) })
}
