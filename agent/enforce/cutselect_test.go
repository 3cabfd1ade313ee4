package enforce

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/agent/policy/policytest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// entry returns a line for conntrack(8) that adds the connection which begins with a packet.
func entry(p policy.Packet, port uint16) string {
	line := fmt.Sprintf("-A -t 1000 -s %s -d %s -p ", p.Src, p.Dst)
	ports := fmt.Sprintf(" --sport %d --dport %d ", port, p.Port)
	switch {
	case p.Protocol == "TCP":
		return line + "tcp" + ports + "--state ESTABLISHED"
	case p.Protocol == "UDP":
		return line + "udp" + ports
	case p.Protocol == "SCTP":
		return line + "sctp" + ports + "--state ESTABLISHED --orig-vtag 1 --reply-vtag 2"
	case p.Src.Is4():
		return line + fmt.Sprintf("icmp --icmp-type 8 --icmp-code 0 --icmp-id %d", port)
	}
	return line + fmt.Sprintf("icmpv6 --icmpv6-type 128 --icmpv6-code 0 --icmpv6-id %d", port)
}

// addEntries adds connections, one for each packet. Their source ports are 1000 and up.
func addEntries(t testing.TB, packets []policy.Packet) {
	t.Helper()
	var lines []string
	for i, p := range packets {
		lines = append(lines, entry(p, uint16(1000+i%64000)))
	}
	file := filepath.Join(t.TempDir(), "entries")
	must(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	kerneltest.Run(t, "conntrack", "-R", file)
}

// cutNow returns what the kernel's table cuts, as lines.
func cutNow(t *testing.T, s *sockets) (out []string) {
	t.Helper()
	tcp, err := policy.CutTCP(s.rules.Elements)
	must(t, err)
	for x := range tcp {
		out = append(out, fmt.Sprint("TCP ", x.Src, " ", x.Dst))
	}
	numbers, err := s.rules.Elements((&policy.Cut{}).Table(), "connections")
	if err != nil {
		numbers = nil // there is no table
	}
	list, _, err := s.conntrack.FromOthers()
	must(t, err)
	for _, x := range list {
		if _, is := numbers[fmt.Sprint(x.ID)]; is {
			out = append(out, describe(packetOf(x), x.Src.Port()))
		}
	}
	if len(out) != len(tcp)+len(numbers) {
		t.Errorf("%d connections are cut, which do not exist", len(tcp)+len(numbers)-len(out))
	}
	slices.Sort(out)
	return out
}

// describe describes a connection. Those of ICMP have no ports.
func describe(p policy.Packet, port uint16) string {
	if p.Protocol == "ICMP" {
		port = 0
	}
	return fmt.Sprint(p.Protocol, " ", netip.AddrPortFrom(p.Src, port), " ", netip.AddrPortFrom(p.Dst, p.Port))
}

// TestCutRandom adds connections between the pods of random worlds, and compares what is cut with the independent
// evaluator. The worlds change, and each change meets a new process.
func TestCutRandom(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	s, err := openSockets()
	must(t, err)
	defer s.close()
	seed := rand.Uint64()
	kerneltest.Run(t, "nft", "add table inet tracking; add chain inet tracking c { type filter hook forward priority 0; }; add rule inet tracking c ct state new")
	for i := range 20 {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		w := policytest.OneNode(policytest.Random(r, policytest.Small), "n1")
		kerneltest.Run(t, "conntrack", "-F")
		_, err := s.cuts.Delete(t.Context(), policy.TableFamily, policy.CutTableName)
		must(t, err)
		var packets []policy.Packet
		for range 40 {
			if p := policytest.Packet(r, w); p.Src != p.Dst && p.Src.IsGlobalUnicast() && p.Dst.IsGlobalUnicast() {
				packets = append(packets, p)
			}
		}
		addEntries(t, packets)
		for step := range 5 {
			e := New(Options{Node: "n1", Log: slog.New(slog.DiscardHandler)})
			clear(e.missing)
			e.update(func(c *policy.Compiler) { c.Add(w) })
			must(t, e.write(t.Context(), s.rules))
			c := &cutter{e: e, conntrack: s.conntrack, p: s.cuts}
			for range 2 { // the second one changes nothing
				must(t, c.pass(t.Context()))
				compareCuts(t, fmt.Sprintf("seed %d, world %d, step %d", seed, i, step), w, packets, cutNow(t, s))
			}
			w = policytest.OneNode(policytest.Mutate(r, w), "n1")
		}
	}
}

// compareCuts compares what is cut with the evaluator. It skips what the evaluator decides in another way: pods of unknown
// namespaces are closed, and the test's host forwards the packets of its node.
func compareCuts(t *testing.T, where string, w *policy.World, packets []policy.Packet, cut []string) {
	t.Helper()
	names := map[string]bool{}
	for i, p := range packets {
		name := describe(p, uint16(1000+i))
		if !skips(w, p.Src) && !skips(w, p.Dst) && slices.Contains(cut, name) == policytest.Decide(w, p).Allowed() {
			t.Fatalf("%s: %s: cut is %v\n%s", where, name, slices.Contains(cut, name), strings.Join(cut, "\n"))
		}
		names[name] = true
	}
	if i := slices.IndexFunc(cut, func(x string) bool { return !names[x] }); i >= 0 {
		t.Fatalf("%s: cut is also %s", where, cut[i])
	}
}

func skips(w *policy.World, a netip.Addr) bool {
	for _, n := range w.Nodes {
		if n.Name == "n1" && slices.Contains(n.Addresses, a) {
			return true
		}
	}
	e := w.EndpointOf(a)
	return e != nil && w.Namespaces[e.Namespace] == nil
}
