package netns

import (
	"testing"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// TestCookieOfSocket compares the cookie that a socket reports with the cookie of the open namespace. Kernels before
// 6.18 have only the first.
func TestCookieOfSocket(t *testing.T) {
	t.Parallel()
	seen := map[uint64]bool{}
	for range 3 {
		err := InNew(func(c *netlink.Conn) error {
			n, err := Current()
			if err != nil {
				return err
			}
			defer n.Close()
			want, err := n.ID()
			if err != nil {
				return err
			}
			have := socketCookie(c)
			if have == 0 || have != want.Cookie || seen[have] {
				t.Errorf("the socket's cookie is %d, the namespace's %d; earlier: %v", have, want.Cookie, seen)
			}
			seen[have] = true
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
