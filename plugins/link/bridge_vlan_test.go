package link

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/plugin/plugintest"
)

// bridgeLink returns a bridge that gives new ports a VLAN.
func bridgeLink(name string, defaultVLAN uint16) *kernel.LinkInfo {
	b := netlink.Buffer(make([]byte, unix.SizeofIfInfomsg))
	b.String(unix.IFLA_IFNAME, name)
	b.Nest(unix.IFLA_LINKINFO, func(n *netlink.Buffer) {
		n.String(unix.IFLA_INFO_KIND, "bridge")
		n.Nest(unix.IFLA_INFO_DATA, func(n *netlink.Buffer) { n.Uint16(39, defaultVLAN) }) // IFLA_BR_VLAN_DEFAULT_PVID
	})
	return kernel.ParseLink(b)
}

// TestTrunkLeavesDefaultVLAN checks that a trunk's port leaves the bridge's default VLAN, unless the configuration has it.
func TestTrunkLeavesDefaultVLAN(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		defaultVLAN uint16
		keys        string
		leaves      bool
	}{
		{5, `"vlanTrunk": [{"id": 100}]`, true},
		{5, `"vlanTrunk": [{"id": 100}], "preserveDefaultVlan": true`, false},
		{5, `"vlanTrunk": [{"minID": 2, "maxID": 100}]`, false},
		{5, `"vlanTrunk": []`, false},
		{1, `"vlanTrunk": [{"id": 100}]`, false},
		{0, `"vlanTrunk": [{"id": 100}]`, false},
	} {
		facts := plugintest.Host(false)
		facts[kernel.Host]["br0"] = bridgeLink("br0", c.defaultVLAN)
		conf := `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "bridge": "br0", ` + c.keys + `}`
		list, err := Bridge().State([]byte(conf), "c1", "eth0", "/run/netns/c1", facts, &cni.Result{})
		if err != nil {
			t.Fatal(err)
		}
		if leaves := strings.Contains(fmt.Sprint(list), fmt.Sprintf("bridge vlan delete dev veth93b41aaa234 vid %d", c.defaultVLAN)); leaves != c.leaves {
			t.Errorf("default VLAN %d, %s: %v", c.defaultVLAN, c.keys, list)
		}
	}
}
