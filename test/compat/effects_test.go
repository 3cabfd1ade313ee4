package compat

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// effect is a known difference of results or effects: the lines that each side has. Equal groups of both patterns have
// equal text. A group named configured is in the configuration. cases matches a case's name and its plugins.
type effect struct {
	cases, steps        string
	reference, fairlead string // "": no line
	why                 string
}

// effects returns the known differences of results and effects that random and boundary values show.
func effects() []effect {
	const anyCase, container, host = ``, `^added: namespace a`, `^(added|deleted): namespace host`
	return []effect{
		{`^ptp/`, container, `route (default via .*)`, `route (default via .*) \{(?P<configured>"mtu":\d+)\}`, "`mtu` of ptp's default route: the reference ignores it"},
		{anyCase, `^shaping`, `qdisc tbf (.*) burst .*`, `qdisc tbf (.*) burst 1518b .*`,
			"bursts that are smaller than a frame: the reference's bucket lets no frame through, Fairlead's holds one"},
		{anyCase, `^shaping`, `qdisc tbf (.* rate 64bit) burst .*`, `qdisc tbf (.* rate 64bit) burst .*`, "bursts of more than 275 s: in the reference the bucket's time wraps"},
		{anyCase, `^mark`, `0x20/0x20`, `none`, "without `backend` Fairlead uses nftables, which needs no mark"},
		{anyCase, `^shaping`, `qdisc tbf (.* rate (?:4294M|10G)bit) burst .*`, `qdisc tbf (.* rate (?:4294M|10G)bit) burst .*`, "bursts at high rates: the reference rounds the bucket to whole ticks"},
		{anyCase, host, `sysctl net/ipv4/conf/(\S+)/route_localnet:0`, `sysctl net/ipv4/conf/(\S+)/route_localnet:1`,
			"mappings of 127.0.0.1 on a bridge without a gateway: they work only in Fairlead"},
		{anyCase, container, `route (10\.9\..*|fd09.*|default.*)`, `route (10\.9\..*|fd09.*|default.*) \{(?P<configured>"(?:mtu|advmss)":\d+)\}`,
			"`mtu` and `advmss` of a route: Fairlead sets them, as specification 1.1.0 defines"},
		{`^dummy/dns`, `^(add|added: result cache)`, ``, `(?:result\.)?dns(?:\.\w+(?:\[0\])?)? = .*`, "`dns` of dummy: the reference ignores it"},
		{`^portmap/hostIP "(::|::1|2001:db8::1)"`, host, `sysctl net/ipv4/conf/(\S+)/route_localnet:1`, `sysctl net/ipv4/conf/(\S+)/route_localnet:0`,
			"a `hostIP` of IPv6: the reference sets `route_localnet`, which only 127.0.0.1 needs"},
		{`^portmap/.*\(nftables\).*"masqAll":\s*true`, `^from (world|host) to`, `hello 192\.0\.2\.[19]`, `hello 10\.1\.0\.1`,
			"`masqAll` with nftables: it has no effect in the reference"},
	}
}

// explained reports whether effects explain every line of a problem that compare found.
func explained(k keyCase, problem string) bool {
	step, diff, _ := strings.Cut(problem, ":\n")
	var reference, fairlead []string
	for line := range strings.Lines(diff) {
		line = strings.TrimSuffix(line, "\n")
		if r, ok := strings.CutPrefix(line, "- "); ok {
			reference = append(reference, r)
		} else if f, ok := strings.CutPrefix(line, "+ "); ok {
			fairlead = append(fairlead, f)
		} else {
			return false
		}
	}
	for _, e := range effects() {
		if regexp.MustCompile(e.cases).MatchString(k.name()+" "+k.plugins) && regexp.MustCompile(e.steps).MatchString(step) {
			reference, fairlead = e.remove(k, reference, fairlead)
		}
	}
	return len(reference)+len(fairlead) == 0
}

// remove removes the pairs of lines that the effect explains.
func (e effect) remove(k keyCase, reference, fairlead []string) (r, f []string) {
	theirs, ours := regexp.MustCompile(`^`+e.reference+`$`), regexp.MustCompile(`^`+e.fairlead+`$`)
	fairlead = slices.DeleteFunc(fairlead, func(line string) bool {
		own := ours.FindStringSubmatch(line)
		if own == nil {
			return false
		}
		if i := ours.SubexpIndex("configured"); i > 0 && !configured(k, own[i]) {
			return false
		}
		if e.reference == "" {
			return true
		}
		i := slices.IndexFunc(reference, func(line string) bool {
			other := theirs.FindStringSubmatch(line)
			return other != nil && slices.Equal(other[1:], own[1:len(other)])
		})
		if i >= 0 {
			reference = slices.Delete(reference, i, i+1)
		}
		return i >= 0
	})
	return reference, fairlead
}

// configured reports whether a route metric is in the configuration. The kernel stores its own maximum instead of a
// larger value.
func configured(k keyCase, metric string) bool {
	text := strings.ReplaceAll(k.plugins, " ", "")
	for _, limit := range []struct {
		key string
		max int
	}{{`"mtu":`, 65535 - 15}, {`"advmss":`, 65535 - 40}} {
		if metric != limit.key+strconv.Itoa(limit.max) {
			continue
		}
		for _, m := range regexp.MustCompile(limit.key+`(\d+)`).FindAllStringSubmatch(text, -1) {
			if n, err := strconv.Atoi(m[1]); err == nil && n >= limit.max {
				return true
			}
		}
	}
	return regexp.MustCompile(regexp.QuoteMeta(metric) + `\b`).MatchString(text)
}
