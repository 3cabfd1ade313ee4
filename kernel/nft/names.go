package nft

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

type icmpv6Type struct {
	name   string
	number byte
}

// icmpv6Types returns the types whose names rules use: RFC 4443, RFC 2710, RFC 3810, RFC 4861.
func icmpv6Types() []icmpv6Type {
	return []icmpv6Type{
		{"destination-unreachable", 1}, {"packet-too-big", 2}, {"time-exceeded", 3}, {"parameter-problem", 4},
		{"echo-request", 128}, {"echo-reply", 129},
		{"mld-listener-query", 130}, {"mld-listener-report", 131}, {"mld-listener-done", 132}, {"mld2-listener-report", 143},
		{"nd-router-solicit", 133}, {"nd-router-advert", 134}, {"nd-neighbor-solicit", 135}, {"nd-neighbor-advert", 136},
		{"nd-redirect", 137},
	}
}

// protocols lists "ipv6-icmp" after "icmpv6": both names are read.
var protocols = [...]struct {
	name   string
	number byte
}{{"tcp", unix.IPPROTO_TCP}, {"udp", unix.IPPROTO_UDP}, {"sctp", unix.IPPROTO_SCTP}, {"icmp", unix.IPPROTO_ICMP}, {"icmpv6", unix.IPPROTO_ICMPV6}, {"ipv6-icmp", unix.IPPROTO_ICMPV6}}

func protoNumber(s string) (byte, error) {
	for i := range protocols {
		if protocols[i].name == s {
			return protocols[i].number, nil
		}
	}
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("unknown protocol %q", s)
	}
	return byte(n), nil
}

// protoName returns the name of a protocol that has ports, and the number of others.
func protoName(n byte) string {
	switch n {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP:
		for i := range protocols {
			if protocols[i].number == n {
				return protocols[i].name
			}
		}
	}
	return fmt.Sprint(n)
}
