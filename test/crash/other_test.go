package crash

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// observer reads the state of a container's namespace.
type observer struct {
	*netnsThread
	dumper *dumper
}

// observe adds a container's namespace to the snapshots.
func (m *machine) observe(netns string) {
	m.T.Helper()
	thread, err := newNetnsThread(netns)
	must(m.T, err)
	o := &observer{netnsThread: thread}
	o.do(func() { o.dumper, err = newDumper() })
	must(m.T, err)
	m.T.Cleanup(func() { o.dumper.close(); o.close() })
	m.containers = append(m.containers, o)
}

// otherContainer is attached to the same network during half of the points. No ADD, DEL or GC of the first container
// may change anything of it.
type otherContainer struct {
	netns     string
	addresses int               // allocated
	replace   *strings.Replacer // changes a configuration where two containers cannot have the same value
}

// otherID is the ID of the other container.
const otherID = "other"

// attachOther attaches the other container and records the clean state with it.
func (m *machine) attachOther() {
	m.T.Helper()
	o := &otherContainer{netns: kerneltest.Netns(m.T)}
	changes := []string{
		"$NETNS", o.netns, "$PREV", strings.ReplaceAll(prevResult, "$NETNS", o.netns), "host0", "host1",
		"10.1.0.2/24", "10.1.0.3/24", "fd01::2/64", "fd01::3/64", "10.1.0.9/24", "10.1.0.10/24", "02:00:00:00:00:99", "02:00:00:00:00:9a",
		`"hostPort": 8080`, `"hostPort": 8090`, `"hostPort": 53`, `"hostPort": 54`, `"vlanId": 5`, `"vlanId": 6`, `"device": "dev0"`, `"device": "dev1"`,
	}
	changes[3] = strings.NewReplacer(changes[4:]...).Replace(changes[3])
	o.replace = strings.NewReplacer(changes...)
	m.prepareOther(o)
	before := m.allocated()
	m.other, m.id = o, otherID
	must(m.T, os.WriteFile(m.file(), []byte(m.conf()), 0o600))
	m.must("ADD")
	m.id = container
	o.addresses = m.allocated() - before
	m.observe(o.netns)
	attached := m.snapshot()
	m.recordClean()
	if d := kerneltest.Diff(attached, m.cleanSnapshot); d != "" {
		m.T.Fatalf("%s: a normal ADD and DEL next to another container change something:\n%s", m.s.name, d)
	}
}

// prepareOther creates the interfaces that the scene expects of the other container.
func (m *machine) prepareOther(o *otherContainer) {
	m.T.Helper()
	m.command("ip link add dev1 address 02:00:00:00:00:0c type veth peer name far1 address 02:00:00:00:00:0d")
	m.command("ip link set dev1 up")
	m.command("ip link set far1 up")
	if !m.s.chained {
		return
	}
	m.command("ip link add host1 address 02:00:00:00:00:09 type veth peer name eth0 address 02:00:00:00:00:0b netns " + o.netns)
	m.command("ip link set host1 up")
	m.addressed(o.netns, "10.1.0.3/24", "fd01::3/64")
	for _, c := range m.s.setup {
		if strings.Contains(c, "host0") {
			m.command(strings.ReplaceAll(c, "host0", "host1"))
		}
	}
}

// validAttachments returns the attachments that GC must keep. The loopback plugin's interface is always lo.
func (m *machine) validAttachments() string {
	if m.other == nil {
		return "[]"
	}
	return `[{"containerID": "` + otherID + `", "ifname": "eth0"}, {"containerID": "` + otherID + `", "ifname": "lo"}]`
}

// allocated returns the number of allocated addresses in the address directory, without the other container's.
func (m *machine) allocated() (n int) {
	for _, root := range []string{"ipam", "lib/networks", "lib/fairlead/addresses"} {
		_ = filepath.WalkDir(filepath.Join(m.Dir, root), func(path string, e os.DirEntry, err error) error {
			if _, bad := netip.ParseAddr(filepath.Base(path)); err == nil && bad == nil {
				n++
			}
			return nil
		})
	}
	if m.other != nil {
		n -= m.other.addresses
	}
	return n
}

// addresses returns the number of addresses in a result.
func addresses(result string) int {
	var r struct {
		IPs []any
		IP4 any
		IP6 any
	}
	_ = json.Unmarshal([]byte(result), &r)
	n := len(r.IPs)
	for _, ip := range []any{r.IP4, r.IP6} {
		if ip != nil {
			n++
		}
	}
	return n
}
