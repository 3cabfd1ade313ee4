package nft

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// The families of linux/netfilter.h that x/sys/unix lacks.
const (
	Inet   = 1 // NFPROTO_INET: IPv4 and IPv6
	ARP    = 3 // NFPROTO_ARP
	Bridge = 7 // NFPROTO_BRIDGE
)

// Subsystem is or-ed into the type of each message.
const Subsystem = unix.NFNL_SUBSYS_NFTABLES << 8

var families = [...]struct {
	name   string
	number byte
}{{"ip", unix.AF_INET}, {"ip6", unix.AF_INET6}, {"inet", Inet}, {"arp", ARP}, {"bridge", Bridge}}

// FamilyNumber returns the number of a family by its name in nft(8). An unknown name is "ip".
func FamilyNumber(name string) byte {
	for i := range families {
		if families[i].name == name {
			return families[i].number
		}
	}
	return unix.AF_INET
}

// FamilyName returns the name of a family in nft(8), or its number as text.
func FamilyName(n byte) string {
	for i := range families {
		if families[i].number == n {
			return families[i].name
		}
	}
	return fmt.Sprint(n)
}

// Message starts the body of a message: struct nfgenmsg for a family by name.
func Message(family string) netlink.Buffer {
	return append(make(netlink.Buffer, 0, 128), FamilyNumber(family), unix.NFNETLINK_V0, 0, 0)
}

// MessageForAll starts the body of a message that lists all families.
func MessageForAll() netlink.Buffer {
	return append(make(netlink.Buffer, 0, 128), unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0)
}

// hookNames returns the hooks of a family in the order of their numbers.
func hookNames(family string) []string {
	if family == "arp" { // linux/netfilter_arp.h
		return []string{"input", "output", "forward"}
	}
	return []string{"prerouting", "input", "forward", "output", "postrouting"}
}

func hookNumber(family, name string) (uint32, error) {
	for i, h := range hookNames(family) {
		if h == name {
			return uint32(i), nil
		}
	}
	return 0, fmt.Errorf("unknown hook %q", name)
}
