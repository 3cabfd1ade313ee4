package compat

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// TestRandomConfigurations changes configurations at random: mostly to other valid values and combinations. If the
// reference accepts a configuration, Fairlead must accept it with the same result and effects. If the reference rejects
// it, Fairlead must reject it. The exceptions are listed in rejectedByFairlead, rejectedByReference and effects. Both
// sides accept at least 80% of the configurations, because a rejected one has no effects to compare.
//
// FAIRLEAD_RANDOM is the number of configurations and FAIRLEAD_SEED the first seed, as in `make compat`. By default
// each run tests the same ones.
func TestRandomConfigurations(t *testing.T) {
	installReference(t)
	count := envInt(t, "FAIRLEAD_RANDOM", 40)
	seed := envInt(t, "FAIRLEAD_SEED", 1)
	pool, values := mutableCases(t), validValues(t)
	var accepted, ran atomic.Int32
	t.Run("case", func(t *testing.T) { // returns when all parallel subtests have ended
		for i := range count {
			t.Run(strconv.Itoa(seed+i), func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(uint64(seed+i), 0))
				k := pool[r.IntN(len(pool))]
				k.plugins = mutatePlugins(r, k.plugins, values)
				ran.Add(1)
				if compareRandom(t, k) {
					accepted.Add(1)
				}
			})
		}
	})
	t.Logf("both sides accept %d of %d configurations", accepted.Load(), ran.Load())
	if ran.Load() >= 10 && accepted.Load()*5 < ran.Load()*4 { // fewer: -run selects single ones
		t.Errorf("both sides accept only %d of %d configurations, want 80%%", accepted.Load(), ran.Load())
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

// mayBeSilent reports whether some of a case's connections get no answer by its settings: with a hostIP that the host may
// lack, without masquerading of the host's own connections, with a gateway that gives the container another address, on a
// bridge that is no gateway, or between isolated ports.
func (k keyCase) mayBeSilent() bool {
	return regexp.MustCompile(`"hostIP"|"snat":\s*false|"gateway"|"isolated"|"portIsolation":\s*true`).MatchString(k.capArgs+k.plugins) ||
		strings.Contains(k.plugins, `"bridge"`) && !regexp.MustCompile(`"is(Default)?Gateway":\s*true`).MatchString(k.plugins)
}

// compareRandom compares both sides and reports whether both accept the configuration.
func compareRandom(t *testing.T, k keyCase) (accepted bool) {
	reference, fairlead := k.record(t, side{}), k.record(t, side{ourPlugins: true})
	switch {
	case reference.firstErr == "" && fairlead.firstErr == "":
		problems, _ := newPage().compare(k.name(), reference.transcript, fairlead.transcript)
		for _, p := range problems {
			if !explained(k, p) {
				t.Error(p)
			}
		}
	case reference.firstErr == "" && !matches(rejectedByFairlead(), fairlead.firstErr):
		t.Errorf("only the reference accepts it: %s", fairlead.firstErr)
	case fairlead.firstErr == "" && !matches(rejectedByReference(), reference.firstErr):
		t.Errorf("only Fairlead accepts it: %s", reference.firstErr)
	}
	if (reference.firstErr == "") != (fairlead.firstErr == "") {
		for _, p := range fairlead.aloneProblems() {
			if !(strings.HasPrefix(p, "from ") && k.mayBeSilent()) {
				t.Error(p)
			}
		}
	}
	if t.Failed() {
		t.Logf("%s: %s %s %s", k.name(), k.plugins, k.capArgs, k.cniArgs)
	}
	return reference.firstErr == "" && fairlead.firstErr == ""
}

// mutableCases returns the cases that both sides accept, that run on any kernel, and that keep their files below their
// host's directory. The page says which cases both sides reject.
func mutableCases(t *testing.T) []keyCase {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "compatibility.md"))
	if err != nil {
		t.Fatal(err)
	}
	equal := map[string]bool{}
	eachRow(string(page), func(row []cell) []cell {
		for _, c := range row {
			equal[c.name] = c.outcome == "equal"
		}
		return row
	})
	return slices.DeleteFunc(allKeys(), func(k keyCase) bool {
		if !equal[k.name()] {
			return true
		}

		wanted := slices.Contains([]string{"bridge", "ptp", "host-local", "static", "portmap", "bandwidth", "firewall", "sbr", "tuning"}, k.plugin)
		return !wanted || k.needs != "" || k.alone || strings.Contains(k.plugins, "dhcp") || !strings.Contains(k.plugins, "{")
	})
}

// validValues returns the valid values of each plugin's keys, as JSON.
func validValues(t *testing.T) map[string]map[string][]string {
	out := map[string]map[string][]string{}
	for _, k := range boundaryKeys() {
		// The other keys belong together, or a value depends on other objects.
		if k.kase.needs != "" || strings.Contains(k.key, ".") || slices.Contains(unchangedKeys(), k.key) {
			continue
		}
		if out[k.plugin] == nil {
			out[k.plugin] = map[string][]string{}
		}
		for _, v := range []string{k.typical, k.other} {
			if v != "" {
				out[k.plugin][k.key] = append(out[k.plugin][k.key], v)
			}
		}
		if k.max != nil && k.key != "mtu" && k.plugin != "bandwidth" { // IPv6 needs an MTU, and a rate a burst, that is not too small
			out[k.plugin][k.key] = append(out[k.plugin][k.key], strconv.FormatInt(*k.min, 10), strconv.FormatInt(*k.max, 10))
		}
	}
	if len(out) < 5 {
		t.Fatalf("values of %d plugins", len(out))
	}
	return out
}

// unchangedKeys returns the keys whose valid values depend on other keys.
func unchangedKeys() []string {
	return append(fixedKeys(), "subnet", "ranges", "addresses", "gateway", "rangeStart", "rangeEnd", "bridge", "externalSetMarkChain",
		"conditionsV4", "conditionsV6", "firewalldZone", "backend", "disableContainerInterface", "hairpinMode", "promiscMode")
}

// change sets a key of a random plugin, or of its IPAM, to another valid value.
func change(r *rand.Rand, list []any, values map[string]map[string][]string) {
	at, _ := list[r.IntN(len(list))].(map[string]any)
	if ipam, ok := at["ipam"].(map[string]any); ok && r.IntN(3) == 0 {
		at = ipam
	}
	plugin, _ := at["type"].(string)
	keys := slices.Sorted(maps.Keys(values[plugin]))
	if len(keys) == 0 {
		return
	}
	key := keys[r.IntN(len(keys))]
	d := json.NewDecoder(strings.NewReader(values[plugin][key][r.IntN(len(values[plugin][key]))]))
	d.UseNumber()
	var v any
	if d.Decode(&v) == nil {
		at[key] = v
	}
}

// mutatePlugins returns a list of plugins with one to three changes. One list in eight gets any change, the others only
// valid values.
func mutatePlugins(r *rand.Rand, plugins string, values map[string]map[string][]string) string {
	var list []any
	d := json.NewDecoder(strings.NewReader("[" + plugins + "]"))
	d.UseNumber()
	if err := d.Decode(&list); err != nil {
		return plugins // the case has invalid JSON on purpose
	}
	wild := r.IntN(8) == 0
	for range 1 + r.IntN(3) {
		if wild {
			mutate(r, list)
		} else {
			change(r, list, values)
		}
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
		{`table = 4294967296: want`, "a `table` of sbr above the kernel's limit: in the reference it wraps"},
		{`ipam\.routes\[\d\]\.(mtu|advmss|priority|table|scope) = .*: want 0 to`, "numbers of routes beyond the kernel's limits: in the reference they wrap"},
		{`ipam\.gateway = .*want an address of a host`, "a `gateway` that is 0.0.0.0, or of another family than its subnet: no route can use it"},
		{`is already taken by container`, "a host port that another container has: the reference's second rule never matches"},
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
		{`failed to add route '\{0\.0\.0\.0 0*f*0*\} via 10\.1\.0\.1 .*: file exists`, "a default route from IPAM next to `isDefaultGateway`: the reference adds it twice"},
		{`invalid range set \d: gateway \S+ not in network`, "a gateway outside host-local's subnet: ptp has a route to it, and addresses such as fe80::1 are common"},
		{`create (ifb )?qdisc: create qdisc: invalid argument`, "bursts of less than a byte: a bucket holds at least one frame"},
	}
}

func matches(list []reason, text string) bool {
	return slices.ContainsFunc(list, func(r reason) bool { return regexp.MustCompile(r.pattern).MatchString(text) })
}
