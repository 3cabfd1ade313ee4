package request

import (
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"strconv"
	"strings"
)

// These bounds of a bandwidth annotation are kubelet's.
const (
	minRate = 1e3  // bits per second
	maxRate = 1e15 // bits per second
)

// scales returns the suffixes of Kubernetes quantities.
func scales() map[string]*big.Rat {
	out := map[string]*big.Rat{}
	for i, s := range []string{"n", "u", "m", "", "k", "M", "G", "T", "P", "E"} {
		out[s] = new(big.Rat).SetFloat64(math.Pow(10, float64(3*max(i-3, 0))))
		for range 3 - i {
			out[s].Quo(out[s], big.NewRat(1000, 1))
		}
	}
	for i, s := range []string{"Ki", "Mi", "Gi", "Ti", "Pi", "Ei"} {
		out[s] = new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), uint(10*(i+1))))
	}
	return out
}

// ParseRate parses a rate in bits per second, a Kubernetes quantity such as 10M, 1.5G, 64Ki or 1e6. It rounds up to
// whole bits. The rate must be between 1k and 1P, as for kubelet.
func ParseRate(s string) (uint64, error) {
	bad := func(problem string) (uint64, error) {
		return 0, fmt.Errorf("rate %q: %s", s, problem)
	}
	digits := len(strings.TrimRight(s, "numkKMGTPEi"))
	number, suffix := s[:digits], s[digits:]
	scale, ok := scales()[suffix]
	if !ok || !plainNumber(number) {
		return bad("want a quantity like 10M, 1.5G or 64Ki, in bits a second")
	}
	v, ok := new(big.Rat).SetString(number)
	if !ok {
		return bad("want a quantity like 10M, 1.5G or 64Ki, in bits a second")
	}
	v.Mul(v, scale)
	if v.Cmp(big.NewRat(minRate, 1)) < 0 || v.Cmp(big.NewRat(maxRate, 1)) > 0 {
		return bad("want 1k to 1P bits a second")
	}
	up := new(big.Int).Add(v.Num(), new(big.Int).Sub(v.Denom(), big.NewInt(1)))
	return up.Quo(up, v.Denom()).Uint64(), nil
}

// plainNumber rejects everything but decimal numbers that big.Rat accepts, and exponents that would take it long.
func plainNumber(s string) bool {
	number, exponent, has := strings.Cut(strings.ReplaceAll(s, "E", "e"), "e")
	if has {
		if n, err := strconv.Atoi(exponent); err != nil || n < -30 || n > 30 {
			return false
		}
	}
	return number != "" && len(number) <= 40 && strings.Trim(number, "0123456789.") == "" && number != "."
}

// ParsePort parses a host port, "[[HOSTIP:]HOSTPORT:]PORT[/PROTOCOL]", with an IPv6 address in brackets. A single number
// is both ports.
func ParsePort(s string) (PortMapping, error) {
	bad := fmt.Errorf("port %q: want [[HOSTIP:]HOSTPORT:]PORT[/tcp|udp|sctp], like 8080:80 or 127.0.0.1:5353:53/udp", s)
	ports, protocol, has := strings.Cut(s, "/")
	p := PortMapping{Protocol: "tcp"}
	if has {
		p.Protocol = strings.ToLower(protocol)
	}
	if ip, rest, ok := strings.Cut(strings.TrimPrefix(ports, "["), "]:"); ok && ports[0] == '[' {
		p.HostIP, ports = ip, rest
	} else if strings.Count(ports, ":") == 2 {
		p.HostIP, ports, _ = strings.Cut(ports, ":")
	}
	host, container, two := strings.Cut(ports, ":")
	if !two {
		container = host
	}
	for _, n := range []struct {
		to   *int
		text string
	}{{&p.HostPort, host}, {&p.ContainerPort, container}} {
		v, err := strconv.ParseUint(n.text, 10, 16)
		if err != nil {
			return PortMapping{}, bad
		}
		*n.to = int(v)
	}
	if p.HostIP != "" {
		ip, err := netip.ParseAddr(p.HostIP)
		if err != nil {
			return PortMapping{}, bad
		}
		p.HostIP = ip.String()
	}
	if p.validate() != nil {
		return PortMapping{}, bad
	}
	return p, nil
}
