package kerneltest

import (
	"bytes"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// feature is something that not every kernel has, with commands that succeed, in a namespace of their own, where the
// kernel has it.
type feature struct {
	name string
	try  []string
}

func features() []feature {
	parent := "ip link add try0 type veth peer name try1"
	return []feature{
		{"a clock of its own", []string{"ls /run/out"}}, // only the virtual machines of test/vm have a clock that ends with them
		{"br_netfilter", []string{"ls /proc/sys/net/bridge/bridge-nf-call-iptables"}},
		{"bridge VLAN filtering", []string{"ip link add try0 type bridge vlan_filtering 1"}},
		{"dummy", []string{"ip link add try0 type dummy"}},
		{"IPVS", []string{"ls /proc/net/ip_vs"}}, // module ip_vs is loaded
		{"ipip", []string{"ip link add try0 type ipip local 192.0.2.1 remote any"}},
		{"ipvlan", []string{parent, "ip link add link try0 name try2 type ipvlan"}},
		{"macvlan", []string{parent, "ip link add link try0 name try2 type macvlan mode bridge"}},
		{"netem", []string{"tc qdisc add dev lo root netem delay 1ms"}},
		{"netkit", []string{"ip link add try0 type netkit"}},
		{"nftables for bridges", []string{"nft add table bridge try", "nft add chain bridge try c { type filter hook prerouting priority 0 ; }",
			"nft add rule bridge try c iifname x ether saddr 02:00:00:00:00:01 drop"}},
		{"Open vSwitch's datapath", []string{"genl ctrl get name ovs_datapath"}},
		{"SCTP", []string{"ls /proc/sys/net/sctp"}}, // module sctp is loaded
		{"SELinux", []string{"ls /sys/fs/selinux/enforce"}},
		{"tap", []string{"ip tuntap add try0 mode tap"}},
		{"vlan", []string{parent, "ip link add link try0 name try2 type vlan id 5"}},
		{"vxlan", []string{"ip link add try0 type vxlan id 5 dstport 4789"}},
		{"wireguard", []string{"ip link add try0 type wireguard"}},
		{"vrf", []string{"ip link add try0 type vrf table 5"}},
	}
}

// lackMessages returns the messages by which a kernel or a program reports a missing feature.
func lackMessages() []string {
	return []string{"Unknown device type", "qdisc kind is unknown", "not supported", "No such file or directory", "No such device"}
}

// Needs skips the test on a kernel that lacks a feature. It tries each feature and records the result in the file that
// FAIRLEAD_FEATURES names. A test that ran on no kernel fails the build (see test/vm).
func Needs(t testing.TB, names ...string) {
	t.Helper()
	lacking := ""
	for _, n := range names {
		if !Has(t, n) {
			lacking = n
		}
	}
	for _, n := range names {
		note(t, n, lacking == "")
	}
	if lacking != "" {
		t.Skipf("needs %s, which this kernel lacks", lacking)
	}
}

// Has reports whether the kernel has a feature. The function features lists the names.
func Has(t testing.TB, name string) bool {
	t.Helper()
	needRoot(t)
	i := slices.IndexFunc(features(), func(f feature) bool { return f.name == name })
	if i < 0 {
		t.Fatalf("no feature %q: add it to kerneltest with the commands that try it", name)
	}
	output, err := inNewNetns(features()[i].try)
	if err == nil {
		return true
	}
	if !slices.ContainsFunc(lackMessages(), func(w string) bool { return strings.Contains(output, w) }) {
		t.Fatalf("cannot tell whether the kernel has %s: %v: %s", name, err, output)
	}
	return false
}

// inNewNetns runs commands in a temporary namespace.
func inNewNetns(commands []string) (output string, err error) {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		for _, c := range commands {
			if err == nil {
				var out []byte
				argv := strings.Fields(c)
				out, err = exec.Command(argv[0], argv[1:]...).CombinedOutput()
				output = string(bytes.TrimSpace(out))
			}
		}
		done <- err
	}()
	err = <-done
	return output, err
}
