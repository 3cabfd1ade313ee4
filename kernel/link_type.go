package kernel

import (
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/netns"
)

// HasLinkType reports whether the kernel can create links of a type. It tries in a temporary namespace.
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
