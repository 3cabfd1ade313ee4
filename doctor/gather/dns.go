package gather

import (
	"bufio"
	"net/netip"
	"os"
	"strings"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/doctor"
	"github.com/fairlead/fairlead/internal/netnspath"
)

// nameserversOf reads the container's resolv.conf, if its path is known. Otherwise the name servers of the result stay.
func nameserversOf(a *doctor.Attachment, r *attach.Record) {
	file := ""
	if name, ok := strings.CutPrefix(r.Netns, netnspath.Dir+"/"); ok {
		file = "/etc/netns/" + name + "/resolv.conf"
	} else if pid, ok := strings.CutSuffix(r.Netns, "/ns/net"); ok && strings.HasPrefix(pid, "/proc/") {
		file = pid + "/root/etc/resolv.conf"
	}
	if list, err := readNameservers(file); err == nil {
		a.Nameservers, a.Resolv = list, file
	}
}

func readNameservers(file string) (out []netip.Addr, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		w := strings.Fields(lines.Text())
		if len(w) < 2 || w[0] != "nameserver" {
			continue
		}
		if ip, err := netip.ParseAddr(w[1]); err == nil {
			out = append(out, ip)
		}
	}
	return out, lines.Err()
}

// hostNameservers returns the host's name servers that containers can reach, too.
func hostNameservers() (out []netip.Addr) {
	for _, file := range []string{"/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"} {
		list, _ := readNameservers(file)
		for _, ip := range list {
			if !ip.IsLoopback() {
				out = append(out, ip)
			}
		}
	}
	return out
}
