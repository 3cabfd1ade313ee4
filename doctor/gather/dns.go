package gather

import (
	"bufio"
	"errors"
	"io"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/doctor"
	"github.com/fairlead/fairlead/internal/netnspath"
)

// nameserversOf reads the container's resolv.conf, if its path is known. Otherwise the name servers of the result stay.
func nameserversOf(a *doctor.Attachment, r *attach.Record) {
	var file string
	var list []netip.Addr
	err := os.ErrNotExist
	if name, ok := strings.CutPrefix(r.Netns, netnspath.Dir+"/"); ok {
		file = "/etc/netns/" + name + "/resolv.conf"
		list, err = readNameservers(file)
	} else if pid, ok := strings.CutSuffix(r.Netns, "/ns/net"); ok && strings.HasPrefix(pid, "/proc/") {
		file = pid + "/root/etc/resolv.conf"
		list, err = readInContainer(pid+"/root", "etc/resolv.conf")
	}
	if err == nil {
		a.Nameservers, a.Resolv = list, file
	}
}

func readNameservers(file string) ([]netip.Addr, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseNameservers(f)
}

// readInContainer reads a file below a container's root directory. The container controls the file: it may be a FIFO, or
// a symbolic link to a file of the host.
func readInContainer(root, file string) ([]netip.Addr, error) {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := dir.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(err, os.ErrInvalid)
	}
	return parseNameservers(f)
}

func parseNameservers(r io.Reader) (out []netip.Addr, err error) {
	lines := bufio.NewScanner(r)
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

// hostNameservers returns the name servers in the host's files that containers can reach, too.
func hostNameservers(files ...string) (out []netip.Addr) {
	for _, file := range files {
		list, _ := readNameservers(file)
		for _, ip := range list {
			if !ip.IsLoopback() && ip.Zone() == "" { // a zone is a link of the host
				out = append(out, ip)
			}
		}
	}
	return out
}
