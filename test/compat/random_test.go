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

// TestRandomConfigurations mutates configurations at random. If the reference accepts a configuration, Fairlead must
// accept it with the same result and effects. If the reference rejects it, Fairlead must reject it. The exceptions are
// listed in rejectedByFairlead, rejectedByReference and effects.
//
// FAIRLEAD_RANDOM is the number of configurations and FAIRLEAD_SEED the first seed, as in `make compat`. By default
// each run tests the same ones.
func TestRandomConfigurations(t *testing.T) {
	installReference(t)
	count := envInt(t, "FAIRLEAD_RANDOM", 40)
	seed := envInt(t, "FAIRLEAD_SEED", 1)
	pool := mutableCases()
	for i := range count {
		t.Run(strconv.Itoa(seed+i), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(seed+i), 0))
			k := pool[r.IntN(len(pool))]
			k.plugins = mutatePlugins(r, k.plugins)
			compareRandom(t, k)
		})
	}
}

func envInt(t *testing.T, variable string, def int) int {
	s := os.Getenv(variable)
	if s == "" {
		return def
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func compareRandom(t *testing.T, k keyCase) {
	reference, fairlead := k.record(t, side{}), k.record(t, side{ourPlugins: true})
	switch {
	case reference.firstErr == "" && fairlead.firstErr == "":
		problems, _ := newPage().compare(k.name(), reference.transcript, fairlead.transcript)
		for _, p := range problems {
			if !matches(effects(), p) {
				t.Error(p)
			}
		}
	case reference.firstErr == "" && !matches(rejectedByFairlead(), fairlead.firstErr):
		t.Errorf("only the reference accepts it: %s", fairlead.firstErr)
	case fairlead.firstErr == "" && !matches(rejectedByReference(), reference.firstErr):
		t.Errorf("only Fairlead accepts it: %s", reference.firstErr)
	}
	if t.Failed() {
		t.Logf("%s: %s %s %s", k.name(), k.plugins, k.capArgs, k.cniArgs)
	}
}

// mutableCases returns the cases that run on any kernel and keep their files below their host's directory.
func mutableCases() []keyCase {
	return slices.DeleteFunc(allKeys(), func(k keyCase) bool {
		wanted := slices.Contains([]string{"bridge", "ptp", "host-local", "static", "portmap", "bandwidth", "firewall", "sbr", "tuning"}, k.plugin)
		return !wanted || k.needs != "" || k.alone || strings.Contains(k.plugins, "dhcp") || !strings.Contains(k.plugins, "{")
	})
}

// mutatePlugins returns a list of plugins with one to three changes.
func mutatePlugins(r *rand.Rand, plugins string) string {
	var list any
	d := json.NewDecoder(strings.NewReader("[" + plugins + "]"))
	d.UseNumber()
	if err := d.Decode(&list); err != nil {
		return plugins // the case has invalid JSON on purpose
	}
	for range 1 + r.IntN(3) {
		mutate(r, list)
	}
	raw, _ := json.Marshal(list) // it was decoded from JSON
	return strings.TrimSuffix(strings.TrimPrefix(string(raw), "["), "]")
}

// mutate descends to a random value and changes it.
func mutate(r *rand.Rand, at any) {
	switch at := at.(type) {
	case []any:
		if len(at) == 0 {
			return
		}
		i := r.IntN(len(at))
		if r.IntN(3) > 0 {
			mutate(r, at[i])
		} else if _, object := at[i].(map[string]any); !object {
			at[i] = otherValue(r, at[i])
		}
	case map[string]any:
		mutateKey(r, at)
	}
}

// fixedKeys returns the keys that name programs, or paths outside the host's directory.
func fixedKeys() []string {
	return []string{"type", "dataDir", "resolvConf", "sysctl", "capabilities", "capability", "CNINetns"}
}

func mutateKey(r *rand.Rand, at map[string]any) {
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(at)), func(k string) bool { return slices.Contains(fixedKeys(), k) })
	if len(keys) == 0 {
		return
	}
	key := keys[r.IntN(len(keys))]
	_, object := at[key].(map[string]any)
	_, array := at[key].([]any)
	switch n := r.IntN(10); {
	case (object || array) && n < 6:
		mutate(r, at[key])
	case n < 7:
		at[key] = otherValue(r, at[key])
	case n == 7 && key != "ipam":
		delete(at, key)
	case n == 8:
		at["unknown"+key] = at[key]
	default:
		at[strings.ToUpper(key[:1])+key[1:]] = otherValue(r, at[key])
	}
}

// otherValue returns another value, usually of the same type.
func otherValue(r *rand.Rand, was any) any {
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

// reason explains a difference between the implementations, by a pattern of the error or the problem.
type reason struct{ pattern, why string }

// rejectedByFairlead returns our errors for configurations that only the reference accepts.
func rejectedByFairlead() []reason {
	return []reason{
		{`backend = .* want "nftables", "iptables" or "firewalld"`, "the reference's firewall treats an unknown backend as none"},
		{`ipMasqBackend = .* want "nftables" or "iptables"`, "the reference ignores an unknown backend, Fairlead rejects it even without ipMasq"},
		{`ipam\.addresses\[0\]\.(address|gateway) = .* want`, "the reference does not parse static's addresses if others replace them"},
		{`(mtu|table) = (-1|0): want`, "the reference's bridge treats a negative MTU as none, sbr a negative table as a number modulo 2^32"},
		{`ipam\.routes\[\d\]\.(mtu|advmss|priority|table|scope) = .*: want 0 to`, "the reference lets numbers beyond the kernel's limits wrap"},
		{`ipam\.gateway = .* is not in the subnet`, "the gateway would be unreachable"},
		{`is already taken by container`, "the reference creates two rules for one port, and the second never matches"},
	}
}

// rejectedByReference returns the reference's errors for configurations that only Fairlead accepts.
func rejectedByReference() []reason {
	return []reason{
		{`via .* dev eth0 .*Scope: link.*: network is unreachable`, "the reference adds the address's gateway to a route with scope link, which is invalid"},
		{`^(exit status 1: )?no plugin name provided`, "CHECK of a bridge without ipam, which ADD accepts"},
		{`Failed to find Gateway .* for interface`, "the reference's CHECK expects a default route that was not requested"},
		{`Expected Route .* not found in routing table`, "the reference's CHECK searches only the main table"},
		{`unknown protocol "" specified|No symbol type information`, "a mapping without a protocol means TCP, in the reference only with nftables"},
		{`Bridge interface \S+ Mac doesn't match`, "the reference's bridge without a gateway has the hardware address of a port"},
		{`if rate is set, burst must also be set`, "a burst has a default"},
		{`invalid CIDR address:\s*$`, "null means that the key is absent, and keys are case-sensitive"},
		{`cannot unmarshal .* (field \.args\.cni|field Address\.ipam\.addresses\.Address) of type`, "keys are case-sensitive"},
		{`cannot unmarshal .* field BridgeArgs\.args\.cni\.mac of type`, "Fairlead ignores args.cni if a capability replaces it"},
		{`failed to add route \{Ifindex: .*: file exists`, "the route to the container's own subnet exists with its address"},
		{`nftables-specific options`, "without a backend, conditions in nftables syntax select nftables"},
		{`failed to add route '\{[0-9.]+ ffffff00\}`, "::ffff:10.1.0.0/120 is an IPv6 route, not an IPv4 route with an IPv6 mask"},
		{`Tuning configured value of .*, current value is`, "the reference's CHECK compares the text of a sysctl, which the kernel may change"},
		{`/proc/sys/net/ipv4/route/flush: permission denied`, "the reference reads a sysctl that can only be written"},
		{`create (ifb )?qdisc: create qdisc: invalid argument`, "a burst of less than a byte: our bucket always holds one frame"},
	}
}

// effects returns the known differences of results and effects.
func effects() []reason {
	return []reason{
		{`this side: route default via .* \{"mtu":`, "the reference's ptp ignores the mtu of the default route"},
		{`this side: qdisc tbf .* burst 1518b`, "a bucket that is smaller than a frame lets no frame through"},
		{`qdisc tbf .* rate 64bit burst .*\n.*qdisc tbf .* rate 64bit burst`, "a bucket's time beyond 275 s wraps in the reference, and in tc's output for ours"},
		{`mark:\s+reference: 0x20/0x20\s+this side: none$`, "Fairlead's default backend is nftables, which needs no mark"},
		{`qdisc tbf .* rate 4294Mbit burst`, "the reference rounds a bucket to whole ticks, which is inexact at high rates"},
		{`namespace host:\s+reference: sysctl net/ipv4/conf/(\S+)/route_localnet:0\s+this side: sysctl net/ipv4/conf/\S+/route_localnet:1$`,
			"the reference finds the bridge by the container's gateway; without a gateway, mappings of 127.0.0.1 do not work"},
	}
}

func matches(list []reason, text string) bool {
	return slices.ContainsFunc(list, func(r reason) bool { return regexp.MustCompile(r.pattern).MatchString(text) })
}
