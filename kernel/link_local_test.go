package kernel_test

import (
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestSmallMTU checks that links with an MTU below 1280 bytes work: the kernel keeps no IPv6 state for them.
func TestSmallMTU(t *testing.T) {
	t.Parallel()
	const mtu = 1000
	mac := kernel.MAC
	for name, object := range map[string]kernel.Object{
		"veth":       &kernel.Veth{Name: "v0", MAC: mac("a"), PeerSide: kernel.Container, PeerName: "eth0", PeerMAC: mac("b"), MTU: mtu, SwitchPort: true, OwnerTag: agentMark},
		"ifb":        &kernel.IFB{Name: "ifb7", MAC: mac("a"), MTU: mtu, OwnerTag: agentMark},
		"netns veth": &kernel.NetnsVeth{Name: "v0", MAC: mac("a"), PeerName: "v1", PeerMAC: mac("b"), MTU: mtu, OwnerTag: agentMark},
		"vxlan":      &kernel.VXLAN{Name: "vx1", ID: 7, Port: 8472, Local: addr("192.0.2.1"), Link: "up0", MAC: mac("a"), MTU: mtu, OwnerTag: agentMark},
		"ipip":       &kernel.IPIP{Name: "tun1", Local: addr("192.0.2.1"), MTU: mtu, OwnerTag: agentMark},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "vxlan" || name == "ipip" {
				kerneltest.Needs(t, name)
			}
			kerneltest.Host(t)
			tunnelUnder(t)
			e := open(t, kerneltest.Netns(t), kernel.Options{})
			list := kernel.Objects{object}
			if name == "ifb" {
				list = append(list, &kernel.Up{Link: "ifb7"})
			}
			for _, step := range []string{"create", "update"} {
				if name != "veth" && name != "ifb" || step == "create" { // the agent's links are updated in place
					if err := e.Apply(list); err != nil {
						t.Fatal(step, err)
					}
				}
				if d, err := e.Compare(list); err != nil || len(d) > 0 {
					t.Error(step, d, err)
				}
			}
		})
	}
}
