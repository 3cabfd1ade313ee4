package kernel

import (
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/netns"
)

// HasLinkType tells whether the kernel makes links of a type, by making one in a
// namespace of its own that ends at once.
func HasLinkType(typ string) bool {
	return netns.InNew(func(c *netlink.Conn) error {
		body := newLink("try", "", 0)
		body.Nest(unix.IFLA_LINKINFO, func(n *netlink.Buffer) { n.String(unix.IFLA_INFO_KIND, typ) })
		r, err := c.Do([]netlink.Request{{Type: unix.RTM_NEWLINK, Flags: unix.NLM_F_CREATE | unix.NLM_F_ACK, Body: body}})
		if err == nil {
			err = r[0].Err
		}
		return err
	}) == nil
}
