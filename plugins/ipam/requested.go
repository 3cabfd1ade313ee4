package ipam

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/ipam"
)

// requestedIPs returns the addresses that ADD should allocate, from runtimeConfig, args and CNI_ARGS. If two sources
// request an address of one range set, the first one counts.
func requestedIPs(data []byte, c conf[hostLocalConf], cniArgs string, sets []ipam.RangeSet) ([]netip.Addr, error) {
	fromArgs, err := argIPs(cniArgs)
	if err != nil {
		return nil, err
	}
	var requested []netip.Addr
	for _, source := range []struct {
		key string
		ips []string
	}{{"runtimeConfig.ips", c.RuntimeConfig.IPs}, {"args.cni.ips", c.Args.CNI.IPs}, {"", fromArgs}} {
		var addrs []netip.Addr
		for i, text := range source.ips {
			a, err := cni.ParseAddress(text)
			if err != nil && source.key != "" {
				return nil, cni.Invalid(data, source.key+"["+strconv.Itoa(i)+"]", wantRequested)
			}
			if err != nil {
				return nil, cni.Errorf(cni.CodeInvalidEnvironment, "CNI_ARGS: IP=%s: %s", text, wantRequested)
			}
			if !overridden(a, sets, requested) {
				addrs = append(addrs, a)
			}
		}
		requested = append(requested, addrs...)
	}
	return requested, nil
}

const wantRequested = "want an address, like 10.1.0.9 or fd00::9"

// argIPs reads the key IP of CNI_ARGS: one address, or several separated by commas.
func argIPs(cniArgs string) ([]string, error) {
	args, err := cni.ParseArgs(cniArgs)
	if err != nil {
		return nil, err
	}
	if err := args.Check("IP"); err != nil {
		return nil, err
	}
	value, _ := args.Get("IP")
	return splitList(value), nil
}

func splitList(value string) []string {
	if value == "" {
		return nil
	}
	list := strings.Split(value, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

// overridden reports whether a source with precedence requests another address of a's set.
func overridden(a netip.Addr, sets []ipam.RangeSet, stronger []netip.Addr) bool {
	for _, set := range sets {
		if _, ok := set.Find(a); !ok {
			continue
		}
		for _, s := range stronger {
			if _, ok := set.Find(s); ok {
				return true
			}
		}
	}
	return false
}
