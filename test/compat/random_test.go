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
		{`backend = .* want "nftables", "iptables" or "firewalld"`, "an unknown `backend` of firewall: the reference ignores it"},
		{`ipMasqBackend = .* want "nftables" or "iptables"`, "an unknown `ipMasqBackend` without `ipMasq`: a typo would go unnoticed"},
		{`ipam\.addresses\[0\]\.(address|gateway) = .* want`, "invalid addresses of static that others replace: the reference does not read them"},
		{`(mtu|table) = (-1|0): want`, "a negative `mtu` of bridge, which the reference ignores, and a `table` of sbr below 1"},
		{`ipam\.routes\[\d\]\.(mtu|advmss|priority|table|scope) = .*: want 0 to`, "numbers of routes beyond the kernel's limits: in the reference they wrap"},
		{`ipam\.gateway = .*want an address of a host`, "a `gateway` that is 0.0.0.0, or of another family than its subnet: no route can use it"},
		{`is already taken by container`, "a host port that is mapped twice: the reference's second rule never matches"},
	}
}

// rejectedByReference returns the reference's errors for configurations that only Fairlead accepts.
func rejectedByReference() []reason {
	return []reason{
		{`via .* dev eth0 .*Scope: link.*: network is unreachable`, "a route with scope link: the reference adds the address's gateway, which is invalid in this scope"},
		{`^(exit status 1: )?no plugin name provided`, "CHECK of a bridge without `ipam`, which ADD accepts"},
		{`Failed to find Gateway .* for interface`, "a gateway without a default route: the reference's CHECK expects one"},
		{`Expected Route .* not found in routing table`, "routes in other tables than main: the reference's CHECK does not search there"},
		{`unknown protocol "" specified|No symbol type information`, "a mapping without `protocol`: it means TCP, in the reference only with nftables"},
		{`Bridge interface \S+ Mac doesn't match`, "CHECK of a bridge without a gateway after other containers came or went: in the reference its hardware address changes"},
		{`if rate is set, burst must also be set`, "a rate without a burst: the burst has a default"},
		{`invalid CIDR address:\s*$`, "null for a subnet or address: the key is absent"},
		{`cannot unmarshal .* (field \.args\.cni|field Address\.ipam\.addresses\.Address) of type`, "values of another type for keys that differ in upper and lower case: JSON keys are case-sensitive"},
		{`cannot unmarshal .* field BridgeArgs\.args\.cni\.mac of type`, "an invalid value in `args.cni` that a capability replaces"},
		{`failed to add route \{Ifindex: .*: file exists`, "a route to the container's own subnet: it exists with the address"},
		{`nftables-specific options`, "conditions in nft syntax without `backend`: they select nftables"},
		{`failed to add route '\{[0-9.]+ ffffff00\}`, "routes to `::ffff:10.1.0.0/120`: it is an IPv6 network, not IPv4 with an IPv6 mask"},
		{`Tuning configured value of .*, current value is`, "sysctls that the kernel writes in another form: the reference's CHECK compares the text"},
		{`/proc/sys/net/ipv4/route/flush: permission denied`, "sysctls that can only be written: the reference reads them first"},
		{`create (ifb )?qdisc: create qdisc: invalid argument`, "bursts of less than a byte: a bucket holds at least one frame"},
	}
}

// effects returns the known differences of results and effects.
func effects() []reason {
	return []reason{
		{`this side: route default via .* \{"mtu":`, "`mtu` of ptp's default route: the reference ignores it"},
		{`this side: qdisc tbf .* burst 1518b`, "bursts that are smaller than a frame: the reference's bucket lets no frame through, Fairlead's holds one"},
		{`qdisc tbf .* rate 64bit burst .*\n.*qdisc tbf .* rate 64bit burst`, "bursts of more than 275 s: in the reference the bucket's time wraps"},
		{`mark:\s+reference: 0x20/0x20\s+this side: none$`, "without `backend` Fairlead uses nftables, which needs no mark"},
		{`qdisc tbf .* rate 4294Mbit burst`, "bursts at high rates: the reference rounds the bucket to whole ticks"},
		{`namespace host:\s+reference: sysctl net/ipv4/conf/(\S+)/route_localnet:0\s+this side: sysctl net/ipv4/conf/\S+/route_localnet:1$`,
			"mappings of 127.0.0.1 on a bridge without a gateway: they work only in Fairlead"},
	}
}

func matches(list []reason, text string) bool {
	return slices.ContainsFunc(list, func(r reason) bool { return regexp.MustCompile(r.pattern).MatchString(text) })
}
