package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/ipam"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestUsers(t *testing.T) {
	t.Parallel()
	d := Open(t.TempDir(), t.TempDir())
	a, b := ipam.Owner{ContainerID: "a", IfName: "eth0"}, ipam.Owner{ContainerID: "b", IfName: "net1.5"}
	must(t, d.SetUser("default", a, "pods"))
	must(t, d.SetUser("default", a, "more"))
	must(t, d.SetUser("default", b, "pods"))
	must(t, os.Symlink("linked", filepath.Join(d.users("default"), "c:eth0"))) // as on a file system without room for hard links
	want := map[ipam.Owner]string{a: "more", b: "pods", {ContainerID: "c", IfName: "eth0"}: "linked"}
	if got, err := d.Users("default"); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	must(t, d.DropUser("default", a))
	must(t, d.DropUser("default", a))
	if d.HasUser("default", a) || !d.HasUser("default", b) {
		t.Error("the dropped owner exists, or another was dropped")
	}
	long := ipam.Owner{ContainerID: strings.Repeat("a", 260), IfName: "eth0"}
	if d.SetUser("default", long, "pods") == nil || d.HasUser("default", long) {
		t.Error("an owner with too long a name was recorded")
	}
	must(t, d.DropUser("default", long))
	if got, err := d.Users("none"); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func text(set ipam.RangeSet) string { return set.String() }

func TestRanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cidr, block string
		exclude     []string
		want        string
	}{
		{"10.0.0.0/16", "10.0.0.0/28", nil, "10.0.0.1-10.0.0.14"},
		{"10.0.0.0/16", "10.0.0.16/28", []string{"10.0.0.20"}, "10.0.0.17-10.0.0.19,10.0.0.21-10.0.0.30"},
		{"10.0.0.0/16", "10.0.0.16/28", []string{"10.0.0.0/24"}, ""},
		{"10.0.0.0/16", "10.0.0.16/28", []string{"10.0.0.1-10.0.0.17", "10.0.0.29-10.1.0.0", "fd00::/8"}, "10.0.0.18-10.0.0.28"},
		{"fd00::/64", "fd00::10/124", []string{"fd00::1f"}, "fd00::11-fd00::1e"},
	} {
		set, err := Subnet{CIDR: netip.MustParsePrefix(c.cidr), Exclude: c.exclude}.Ranges(netip.MustParsePrefix(c.block))
		if err != nil || text(set) != c.want {
			t.Errorf("%s without %v: %s, want %s: %v", c.block, c.exclude, text(set), c.want, err)
		}
	}
}

func TestSubtract(t *testing.T) {
	t.Parallel()
	r := func(a, b string) ipam.Range {
		return ipam.Range{Start: netip.MustParseAddr(a), End: netip.MustParseAddr(b)}
	}
	set := ipam.RangeSet{r("10.0.0.1", "10.0.0.5"), r("10.0.0.9", "10.0.0.9"), r("fd00::1", "fd00::3")}
	for cut, want := range map[string]string{
		"":                            "10.0.0.1-10.0.0.5,10.0.0.9-10.0.0.9,fd00::1-fd00::3",
		"10.0.0.1":                    "10.0.0.2-10.0.0.5,10.0.0.9-10.0.0.9,fd00::1-fd00::3",
		"10.0.0.5 10.0.0.3 10.0.0.7":  "10.0.0.1-10.0.0.2,10.0.0.4-10.0.0.4,10.0.0.9-10.0.0.9,fd00::1-fd00::3",
		"10.0.0.9 fd00::2 10.0.0.255": "10.0.0.1-10.0.0.5,fd00::1-fd00::1,fd00::3-fd00::3",
	} {
		var addrs []netip.Addr
		for _, a := range strings.Fields(cut) {
			addrs = append(addrs, netip.MustParseAddr(a))
		}
		if got := text(Subtract(set, addrs)); got != want {
			t.Errorf("without %s: %s, want %s", cut, got, want)
		}
	}
}

func TestNetworkFile(t *testing.T) {
	t.Parallel()
	d := Open(t.TempDir(), t.TempDir())
	if _, err := d.Read("default"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	n := &Network{Name: "default", Node: "a", MTU: 1450, Subnets: []Subnet{{CIDR: netip.MustParsePrefix("10.0.0.0/16"), Blocks: []netip.Prefix{netip.MustParsePrefix("10.0.1.0/26")}}}}
	must(t, d.Write(n))
	got, err := d.Read("default")
	if err != nil || got.MTU != 1450 || got.Subnets[0].Blocks[0] != n.Subnets[0].Blocks[0] {
		t.Errorf("%+v, %v", got, err)
	}
	if names, err := d.Networks(); err != nil || !slices.Equal(names, []string{"default"}) {
		t.Errorf("%v, %v", names, err)
	}
	for raw, want := range map[string]string{
		`{`:                               "unexpected end",
		`{"version": 9}`:                  "its version is 9",
		`{"version": 1, "subnets": [{}]}`: "no cidr",
		`{"version": 1, "subnets": [{"cidr": "10.0.0.0/24", "blocks": ["10.1.0.0/26"]}]}`:      "block 10.1.0.0/26 is not in subnet",
		`{"version": 1, "subnets": [{"cidr": "10.0.0.0/24", "blocks": ["10.0.0.5/26"]}]}`:      "host bits",
		`{"version": 1, "subnets": [{"cidr": "10.0.0.0/24", "blocks": [""], "exclude": "x"}]}`: "cannot unmarshal",
	} {
		must(t, os.WriteFile(d.networkFile("default"), []byte(raw), 0o600))
		if _, err := d.Read("default"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", raw, err)
		}
	}
	if _, err := d.Read("../x"); err == nil {
		t.Error("a path is accepted as a name")
	}
}

func TestCooling(t *testing.T) {
	t.Parallel()
	list, lines := cooling("10.0.0.3 100\n10.0.0.2 50\n10.0.0.3 60\n10.0.0.9 5\n10.0.0.8 500\nnonsense\n10.0.0.7\n10.0.0.6 1", 101, 60)
	want := []Cooled{{netip.MustParseAddr("10.0.0.2"), 50}, {netip.MustParseAddr("10.0.0.3"), 60}}
	if !slices.Equal(list, want) || lines != 8 {
		t.Errorf("%v of %d lines, want %v", list, lines, want)
	}
	d := Open(t.TempDir(), "")
	must(t, os.MkdirAll(d.Root(), 0o755))
	for i := range 300 {
		must(t, d.Cool("n", []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i % 3)})}))
	}
	got, err := d.Cooling("n", time.Hour)
	raw, _ := os.ReadFile(d.coolingFile("n"))
	if err != nil || len(got) != 3 || strings.Count(string(raw), "\n") != 3 {
		t.Errorf("%v, %v; the file is\n%s", got, err, raw)
	}
}

func TestJournal(t *testing.T) {
	t.Parallel()
	d, ctx := Open(t.TempDir(), ""), context.Background()
	r := func(i int) Release {
		return Release{Network: "n", Container: fmt.Sprint("c", i), IfName: "eth0"}
	}
	must(t, d.AppendReleases(ctx, r(1), r(2)))
	// The store is unavailable, so the releases are not forgotten.
	if got, err := d.TakeReleases(ctx); err != nil || !slices.Equal(got, []Release{r(1), r(2)}) {
		t.Errorf("got %v, %v", got, err)
	}
	must(t, d.AppendReleases(ctx, r(3)))
	kill := func() {
		f, err := os.OpenFile(d.journal(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		must(t, err)
		_, err = f.WriteString(`{"network": "n", "cont`)
		must(t, errors.Join(err, f.Close()))
	}
	kill()
	for range 2 {
		got, err := d.TakeReleases(ctx)
		if err != nil || !slices.Equal(got, []Release{r(1), r(2), r(3)}) {
			t.Errorf("got %v, %v", got, err)
		}
	}
	must(t, d.AppendReleases(ctx, r(4)))
	kill()
	must(t, d.AppendReleases(ctx, r(5)))
	got, err := d.TakeReleases(ctx)
	if err != nil || !slices.Equal(got, []Release{r(1), r(2), r(3), r(4), r(5)}) {
		t.Errorf("after incomplete lines: %v, %v", got, err)
	}
	must(t, d.ClearTaken())
	must(t, d.ClearTaken())
	if got, err := d.TakeReleases(ctx); err != nil || len(got) != 0 {
		t.Errorf("forgotten: %v, %v", got, err)
	}
	if list, err := d.PendingReleases(); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	// A journal with only incomplete lines is deleted.
	kill()
	if got, err := d.TakeReleases(ctx); err != nil || len(got) != 0 {
		t.Errorf("half a line: %v, %v", got, err)
	}
	if files, err := filepath.Glob(d.journal() + "*"); err != nil || !slices.Equal(files, []string{d.journal() + ".lock"}) {
		t.Errorf("left: %v, %v", files, err)
	}
}

// FuzzFiles checks that any file content is read without a panic, and that accepted ranges can be allocated from.
func FuzzFiles(f *testing.F) {
	f.Add([]byte(`{"version":1,"name":"default","subnets":[{"cidr":"10.0.0.0/16","blocks":["10.0.1.0/26"],"exclude":["10.0.1.3"]}]}`))
	f.Add([]byte("10.0.0.1 77\nfd00::1 9\n"))
	f.Add([]byte(`{"network":"n","container":"c","ifName":"eth0"}` + "\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		cooling(string(raw), 1000, 100)
		parseJournal(raw)
		n, err := parseNetwork(raw)
		if err != nil {
			return
		}
		for _, s := range n.Subnets {
			for _, b := range s.Blocks {
				set, err := s.Ranges(b)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range set {
					if !b.Contains(r.Start) || !b.Contains(r.End) || r.End.Less(r.Start) {
						t.Fatalf("%s of block %s", r, b)
					}
				}
			}
		}
	})
}

// listening returns the directories of an agent, and its socket, which is closed with the test.
func listening(t *testing.T) (Dir, net.Listener) {
	t.Helper()
	d := Open(t.TempDir(), t.TempDir())
	must(t, os.MkdirAll(filepath.Dir(d.Socket()), 0o755))
	l, err := net.Listen("unix", d.Socket())
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return d, l
}

// TestAnswers checks what a caller is told when the agent's answer is incomplete, invalid, or an error. Only an agent
// that stops or restarts counts as away.
func TestAnswers(t *testing.T) {
	t.Parallel()
	d, l := listening(t)
	version := fmt.Sprintf(`{"v":%d,`, ProtocolVersion)
	for _, c := range []struct {
		answer, want string
		away         bool
	}{
		{"", "closed the connection", true},
		{version + `"result":{`, "closed the connection", true},
		{version + `"result":{"n":7}}` + "\n", "", false},
		{version + `"result":"text"}` + "\n", "read the answer of the agent", false},
		{"text\n", "read the agent's answer", false},
		{`{"v":0,"result":{}}` + "\n", "the agent supports version 0", false},
	} {
		served := make(chan struct{})
		go func() {
			defer close(served)
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(conn).ReadBytes('\n')
			_, _ = conn.Write([]byte(c.answer))
			_ = conn.Close()
		}()
		var got struct{ N int }
		err := d.Call(t.Context(), "op", struct{}{}, &got)
		<-served
		_, away := errors.AsType[*AwayError](err)
		if away != c.away || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.answer, err, c.want)
		}
		if err == nil && got.N != 7 {
			t.Errorf("%q: the result is %+v", c.answer, got)
		}
	}
}

// TestCancelledCall verifies that the error of a cancelled call has the caller's reason, not the connection's timeout.
func TestCancelledCall(t *testing.T) {
	t.Parallel()
	d, _ := listening(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the caller's reason"))
	if err := d.Call(ctx, "op", struct{}{}, nil); err == nil || err.Error() != "ask the agent at "+d.Socket()+": the caller's reason" {
		t.Error(err)
	}
}
