package ipam

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/wire"
)

const wantAddress = "want an address with its prefix length, like 10.1.0.9/16 or fd00::9/64"

// prefixes parses a list of addresses with prefix lengths.
func prefixes(data []byte, key string, texts []string) ([]cni.IP, error) {
	var ips []cni.IP
	for i, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, cni.Invalid(data, fmt.Sprintf("%s[%d]", key, i), wantAddress)
		}
		ips = append(ips, cni.IP{Address: wire.UnmapPrefix(p)})
	}
	return ips, nil
}

// argAddresses reads IP and GATEWAY of CNI_ARGS, each a comma-separated list. A gateway belongs to the addresses whose
// subnet contains it.
func argAddresses(cniArgs string) ([]cni.IP, error) {
	args, err := cni.ParseArgs(cniArgs)
	if err != nil {
		return nil, err
	}
	if err := args.Check("IP", "GATEWAY"); err != nil {
		return nil, err
	}
	var ips []cni.IP
	list, _ := args.Get("IP")
	for _, text := range splitList(list) {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, cni.Errorf(cni.CodeInvalidEnvironment, "CNI_ARGS: IP=%s: %s", text, wantAddress)
		}
		ips = append(ips, cni.IP{Address: wire.UnmapPrefix(p)})
	}
	list, _ = args.Get("GATEWAY")
	for _, text := range splitList(list) {
		gw, err := netip.ParseAddr(text)
		if err != nil || gw.Zone() != "" {
			return nil, cni.Errorf(cni.CodeInvalidEnvironment, "CNI_ARGS: GATEWAY=%s: want an address, like 10.1.0.1 or fd00::1", text)
		}
		for i := range ips {
			if ips[i].Address.Masked().Contains(gw.Unmap()) {
				ips[i].Gateway = gw.Unmap()
			}
		}
	}
	return ips, nil
}
