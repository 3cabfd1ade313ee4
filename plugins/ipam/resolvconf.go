package ipam

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/fairlead/fairlead/cni"
)

// readResolvConf reads a file in the format of resolv.conf(5). The last domain counts; search and options add up.
func readResolvConf(path string) (dns cni.DNS, err error) {
	f, err := os.Open(path)
	if err != nil {
		return dns, fmt.Errorf("want a file in the format of resolv.conf: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0][0] == '#' || fields[0][0] == ';' {
			continue
		}
		switch fields[0] {
		case "nameserver":
			dns.Nameservers = append(dns.Nameservers, fields[1])
		case "domain":
			dns.Domain = fields[1]
		case "search":
			dns.Search = append(dns.Search, fields[1:]...)
		case "options":
			dns.Options = append(dns.Options, fields[1:]...)
		}
	}
	if err := lines.Err(); err != nil {
		return dns, fmt.Errorf("want a file in the format of resolv.conf: read %s: %w", path, err)
	}
	return dns, nil
}
