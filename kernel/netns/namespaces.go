package netns

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// All opens every network namespace that a process lives in, or that is mounted in this mount namespace, each once. It
// does not see a namespace that only a process in another PID namespace holds. If it lacks memory or file descriptors, it
// returns an error, because callers remove what no namespace has.
func All() (out []*Handle, err error) {
	paths, err := nsMounts()
	if err != nil {
		return nil, err
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err == nil {
			paths = append(paths, filepath.Join("/proc", p.Name(), "ns/net"))
		}
	}
	seen := map[[2]uint64]bool{}
	for _, path := range paths {
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil || seen[[2]uint64{st.Dev, st.Ino}] {
			continue
		}
		ns, err := Open(path)
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) {
			for _, ns := range out {
				ns.Close()
			}
			return nil, fmt.Errorf("open all network namespaces: %w", err)
		}
		if err != nil {
			continue // the namespace ended
		}
		seen[[2]uint64{st.Dev, st.Ino}] = true
		out = append(out, ns)
	}
	return out, nil
}

// Paths returns a path of each network namespace that All sees, by its ID. It leaves out namespaces without a cookie: the
// kernel uses an inode again, so device and inode do not identify a namespace that has left its path.
func Paths() (map[ID]string, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	paths := map[ID]string{}
	for _, ns := range all {
		if id, err := ns.ID(); err == nil && id.Cookie != 0 {
			paths[id] = ns.Path()
		}
		ns.Close()
	}
	return paths, nil
}

// nsMounts returns the paths on which network namespaces are mounted. Source: proc_pid_mountinfo(5).
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

// unescape decodes a path of mountinfo, which writes blanks and backslashes in octal.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// Addrs lists the addresses of all links in the namespace.
func (n *Handle) Addrs() (out []netip.Addr, err error) {
	var c *netlink.Conn
	err = n.Do(func() (err error) {
		c, err = netlink.Dial(unix.NETLINK_ROUTE, make([]byte, netlink.BufferSize))
		return err
	})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	msgs, err := c.Dump(netlink.Request{Type: unix.RTM_GETADDR, Body: netlink.Buffer{0, 0, 0, 0, 0, 0, 0, 0}})
	if err != nil {
		return nil, fmt.Errorf("list addresses of %s: %w", n.path, err)
	}
	for _, m := range msgs {
		if len(m) >= unix.SizeofIfAddrmsg {
			out = append(out, netlink.LocalAddr(m))
		}
	}
	return out, nil
}
