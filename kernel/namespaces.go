package kernel

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Namespaces opens every network namespace that a process lives in, or that is
// mounted where this one sees it, each once. What only a process in another
// namespace of processes holds is not seen.
func Namespaces() (out []*Netns, err error) {
	paths, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return nil, err
	}
	mounted, err := nsMounts()
	if err != nil {
		return nil, err
	}
	seen := map[[2]uint64]bool{}
	for _, path := range append(mounted, paths...) {
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil || seen[[2]uint64{st.Dev, st.Ino}] {
			continue
		}
		ns, err := OpenNetns(path)
		if err != nil {
			continue // it has ended
		}
		seen[[2]uint64{st.Dev, st.Ino}] = true
		out = append(out, ns)
	}
	return out, nil
}

// nsMounts are the paths on which network namespaces are mounted.
// Source: proc_pid_mountinfo(5).
func nsMounts() (paths []string, err error) {
	f, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		w := strings.Fields(lines.Text())
		if len(w) > 4 && strings.HasPrefix(w[3], "net:[") {
			paths = append(paths, unescape(w[4]))
		}
	}
	return paths, lines.Err()
}

// unescape reads a path as mountinfo writes it: blanks and backslashes in octal.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// Addrs lists the addresses of a namespace, of all its links.
func (n *Netns) Addrs() (out []netip.Addr, err error) {
	var c *conn
	err = n.Do(func() (err error) {
		c, err = dial(unix.NETLINK_ROUTE, make([]byte, rxSize))
		return err
	})
	if err != nil {
		return nil, err
	}
	defer c.close()
	msgs, err := c.dump(request{typ: unix.RTM_GETADDR, body: buf{0, 0, 0, 0, 0, 0, 0, 0}})
	if err != nil {
		return nil, fmt.Errorf("list addresses of %s: %w", n.path, err)
	}
	for _, m := range msgs {
		if len(m) >= unix.SizeofIfAddrmsg {
			out = append(out, ownAddress(m))
		}
	}
	return out, nil
}

// InUse tells whether the other end of a host's link is in one of some namespaces.
func (e *Engine) InUse(l *LinkInfo, by []*Netns) (bool, error) {
	if l.peerNetns < 0 {
		return false, nil
	}
	for _, ns := range by {
		body := buf{unix.AF_UNSPEC, 0, 0, 0}
		body.u32(unix.NETNSA_FD, uint32(ns.fd))
		resp, err := e.now(Host, request{typ: unix.RTM_GETNSID, body: body})
		if err != nil {
			return false, fmt.Errorf("number of %s: %w", ns.path, err)
		}
		for _, m := range resp.msgs {
			if v := attr(m[min(4, len(m)):], unix.NETNSA_NSID); len(v) == 4 && int32(binary.NativeEndian.Uint32(v)) == l.peerNetns {
				return true, nil
			}
		}
	}
	return false, nil
}

// MarkedInUse are the marks of the host's links whose other end is in a namespace
// that somebody uses.
func (e *Engine) MarkedInUse() (map[string]bool, error) {
	all, err := e.Links(Host)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	var in []*Netns
	for _, l := range all {
		if l.Group != Group || !strings.HasPrefix(l.Alias, markPrefix) || !l.IsPair() {
			continue
		}
		if in == nil {
			if in, err = Namespaces(); err != nil {
				return nil, err
			}
		}
		used, err2 := e.InUse(l, in)
		err = errors.Join(err, err2)
		out[l.Alias] = out[l.Alias] || used || err2 != nil
	}
	for _, ns := range in {
		ns.Close()
	}
	return out, err
}
