package kernel

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// openWithoutSubsystems opens an engine as on a kernel without any netfilter subsystem. A socket of another family stands
// for the netfilter socket: both answer EINVAL to an unknown type of message.
func openWithoutSubsystems(t *testing.T) *Engine {
	t.Helper()
	kerneltest.Host(t)
	e, err := Open(nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	if e.nf, err = netlink.Dial(unix.NETLINK_SOCK_DIAG, e.rx); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestKernelWithoutNFTables removes and lists what such a kernel cannot have.
func TestKernelWithoutNFTables(t *testing.T) {
	t.Parallel()
	e := openWithoutSubsystems(t)
	if list, err := e.ForwardDropChains(""); err != nil || len(list) > 0 {
		t.Errorf("forward chains: %v, %v", list, err)
	}
	if err := e.RemoveTagged(func(string) bool { return true }); err != nil {
		t.Errorf("remove what has an owner tag: %v", err)
	}
	list := Objects{
		&NFT{Family: "inet", Table: Table, Kind: "set", Name: "masq", Text: "ipv4_addr", Network: "net", ChainGroup: "net-4"},
		&Element{Family: "inet", Table: Table, Set: "masq", Type: "ipv4_addr", Key: "10.1.0.5", OwnerTag: "fairlead net c1 eth0"},
	}
	if err := e.Remove(append(list, &ReferenceRules{Family: "ip", Table: "nat", Chain: "POSTROUTING", JumpTarget: "CNI-1"})); err != nil {
		t.Errorf("remove: %v", err)
	}
	if err := e.Apply(list); !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "the kernel lacks nftables: load the module nf_tables") {
		t.Errorf("apply: %v", err)
	}
	const unknown = 31
	_, err := netlink.Dial(unknown, nil)
	if err = needsNFTables(err); !lacksSubsystem(err) || !strings.Contains(err.Error(), `"ipMasqBackend" and "backend" set to "iptables"`) {
		t.Errorf("a kernel without netfilter sockets: %v", err)
	}
}
