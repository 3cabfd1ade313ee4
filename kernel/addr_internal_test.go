package kernel

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAddrWithoutIPv6 has the answer of a kernel that was started with ipv6.disable=1.
func TestAddrWithoutIPv6(t *testing.T) {
	t.Parallel()
	for prefix, explained := range map[string]bool{"fd00::1/64": true, "192.0.2.1/24": false} {
		err := (&Addr{Prefix: netip.MustParsePrefix(prefix)}).explain(nil, unix.EOPNOTSUPP)
		if !errors.Is(err, unix.EOPNOTSUPP) || strings.Contains(err.Error(), "no IPv6") != explained {
			t.Errorf("%s: %v", prefix, err)
		}
	}
}
