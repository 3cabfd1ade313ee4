package delegate

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/plainfile"
)

// subnetEnv is flanneld's file about this host.
type subnetEnv struct {
	networks, subnets []netip.Prefix
	mtu               int  // bytes
	ipMasq            bool // flanneld masquerades: the delegate must not
}

// readSubnet reads flanneld's file, with lines such as FLANNEL_NETWORK=10.1.0.0/16.
func readSubnet(file string) (e subnetEnv, err error) {
	raw, err := plainfile.Read(file)
	if errors.Is(err, os.ErrNotExist) {
		return e, cni.Errorf(cni.CodePluginNotAvailable, "flannel's file for this host does not exist: is flanneld running? %w", err)
	}
	if err != nil {
		return e, cni.Errorf(cni.CodePluginNotAvailable, "read flannel's file for this host: %w", err)
	}
	if e, err = parseSubnet(string(raw)); err != nil {
		return e, cni.Errorf(cni.CodePluginNotAvailable, "%s: %w", file, err)
	}
	return e, nil
}

func parseSubnet(text string) (e subnetEnv, err error) {
	has := map[string]bool{}
	for n, line := range strings.Split(text, "\n") {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			continue
		}
		value = strings.Trim(value, `"'`)
		has[key] = true
		switch key {
		case "FLANNEL_NETWORK", "FLANNEL_IPV6_NETWORK":
			err = prefixes(&e.networks, value, true)
		case "FLANNEL_SUBNET", "FLANNEL_IPV6_SUBNET":
			err = prefixes(&e.subnets, value, false)
		case "FLANNEL_MTU":
			if e.mtu, err = strconv.Atoi(value); err == nil && (e.mtu < 0 || e.mtu > 65535) {
				err = errors.New("want 0 to 65535 bytes")
			}
		case "FLANNEL_IPMASQ":
			e.ipMasq, err = strconv.ParseBool(value)
		}
		if err != nil {
			return e, fmt.Errorf("line %d: %s=%s: %w", n+1, key, value, err)
		}
	}
	if len(e.subnets) == 0 {
		return e, errors.New("no FLANNEL_SUBNET and no FLANNEL_IPV6_SUBNET: flanneld has leased no subnet yet")
	}
	var missing []string
	if len(e.networks) == 0 {
		missing = append(missing, "FLANNEL_NETWORK")
	}
	for _, key := range []string{"FLANNEL_MTU", "FLANNEL_IPMASQ"} {
		if !has[key] {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		return e, fmt.Errorf("no %s: flanneld writes this file, with all of its keys", strings.Join(missing, ", "))
	}
	return e, nil
}

// prefixes reads one prefix or, with several set, a comma-separated list; "" is an empty list.
func prefixes(into *[]netip.Prefix, value string, several bool) error {
	list := []string{value}
	if several {
		list = strings.Split(value, ",")
	}
	for _, s := range list {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return err
		}
		*into = append(*into, p)
	}
	return nil
}
