package chain

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugin/plugintest"
)

// vrfLink returns a VRF device with a table.
func vrfLink(name string, table uint32) *kernel.LinkInfo {
	b := netlink.Buffer(make([]byte, unix.SizeofIfInfomsg))
	b.String(unix.IFLA_IFNAME, name)
	b.Nest(unix.IFLA_LINKINFO, func(n *netlink.Buffer) {
		n.String(unix.IFLA_INFO_KIND, "vrf")
		n.Nest(unix.IFLA_INFO_DATA, func(n *netlink.Buffer) { n.Uint32(1, table) }) // linux/if_link.h: IFLA_VRF_TABLE
	})
	return kernel.ParseLink(b)
}

// TestVRFTable checks the table of a VRF in a container that has VRFs with the tables 1, 2 and 4.
func TestVRFTable(t *testing.T) {
	t.Parallel()
	facts := plugintest.Host(true)
	for name, table := range map[string]uint32{"red": 1, "green": 2, "blue": 4} {
		facts[kernel.Container][name] = vrfLink(name, table)
	}
	for _, c := range []struct {
		name    string
		table   int
		want    int
		problem string
	}{
		{name: "new", want: 3},
		{name: "new", table: 7, want: 7},
		{name: "new", table: 4, want: 4}, // several VRFs may have the configured table
		{name: "green", want: 2},
		{name: "green", table: 2, want: 2},
		{name: "green", table: 7, problem: "vrf green exists with table 2"},
		{name: "eth0", problem: "eth0 exists in the container and is not a vrf"},
	} {
		v := &vrf{Name: c.name, Table: c.table}
		v.Raw = []byte(`{"vrfname": "x", "table": 1}`)
		links, err := facts.Links(kernel.Container)
		if err != nil {
			t.Fatal(err)
		}
		got, err := v.table(&plugin.Attachment{Facts: facts}, links)
		if got != c.want || (err != nil) != (c.problem != "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%+v: table %d, %v", c, got, err)
		}
	}
}

// TestVRFTablesOfTheKernel checks that a VRF cannot have a table that the kernel uses for every packet.
func TestVRFTablesOfTheKernel(t *testing.T) {
	t.Parallel()
	for table, ok := range map[int]bool{-1: false, 0: true, 252: true, 253: false, 254: false, 255: false, 256: true, maxTable: true, maxTable + 1: false} {
		v := &vrf{Name: "blue", Table: table}
		v.Raw = []byte(`{}`)
		if err := v.Validate(nil); (err == nil) != ok {
			t.Errorf("table %d: %v", table, err)
		}
	}
}
