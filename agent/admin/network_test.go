package admin

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
)

func newStore(t *testing.T, entries map[string]string) store.Store {
	t.Helper()
	s, err := store.File(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for key, value := range entries {
		if _, err := s.Commit(t.Context(), store.Op{Key: key, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// keys returns the keys and values of a store below a prefix, as "key=value" separated by spaces.
func keys(t *testing.T, s store.Store, prefix string) string {
	t.Helper()
	entries, _, err := s.List(context.Background(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Key+"="+string(e.Value))
	}
	return strings.Join(out, " ")
}

func isolated(vni int) *cluster.Network {
	return &cluster.Network{Name: "blue", Isolated: true, VNI: vni, Subnets: []cluster.Subnet{{CIDR: netip.MustParsePrefix("10.9.0.0/16")}}}
}

func TestApplyNetworkKeepsAnAllocatedVNI(t *testing.T) {
	t.Parallel()
	s := newStore(t, map[string]string{
		"networks/blue": `{"isolated":true,"vni":70001,"subnets":[{"cidr":"10.9.0.0/16"}]}`, "vnis/70001": "blue",
	})
	before := keys(t, s, "")
	if did, err := ApplyNetwork(t.Context(), s, isolated(0), false); did != Unchanged || err != nil {
		t.Errorf("a file without the VNI: %s, %v", did, err)
	}
	if now := keys(t, s, ""); now != before {
		t.Errorf("got %s, want %s", now, before)
	}
	changed := isolated(0)
	changed.MTU = 1400
	if did, err := ApplyNetwork(t.Context(), s, changed, false); did != Changed || err != nil {
		t.Errorf("another MTU: %s, %v", did, err)
	}
	if now := keys(t, s, "networks/"); !strings.Contains(now, `"vni":70001`) || !strings.Contains(now, `"mtu":1400`) {
		t.Errorf("got %s", now)
	}
}

func TestApplyNetworkReleasesTheOldVNI(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	for _, step := range []struct {
		vni  int
		did  string
		vnis string
	}{{5000, Created, "vnis/5000=blue"}, {6000, Changed, "vnis/6000=blue"}, {6000, Unchanged, "vnis/6000=blue"}} {
		if did, err := ApplyNetwork(t.Context(), s, isolated(step.vni), true); did != step.did || err != nil {
			t.Errorf("VNI %d, dry run: %s, %v", step.vni, did, err)
		}
		did, err := ApplyNetwork(t.Context(), s, isolated(step.vni), false)
		if now := keys(t, s, "vnis/"); did != step.did || err != nil || now != step.vnis {
			t.Errorf("VNI %d: %s, %v, the store has %s", step.vni, did, err, now)
		}
	}
	if err := DeleteNetwork(t.Context(), s, "blue", true); err != nil || keys(t, s, "") == "" {
		t.Errorf("dry run of the removal: %v", err)
	}
	if err := DeleteNetwork(t.Context(), s, "blue", false); err != nil || keys(t, s, "") != "" {
		t.Errorf("removal: %v, the store has %s", err, keys(t, s, ""))
	}
}

// TestApplyNetworkWithEmptyLists checks that an empty list in a file is like a missing one, which the store has.
func TestApplyNetworkWithEmptyLists(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	n := isolated(5000)
	n.Peers, n.Backends, n.Subnets[0].Exclude = []string{}, []cluster.Backend{}, []string{}
	for _, want := range []string{Created, Unchanged} {
		if did, err := ApplyNetwork(t.Context(), s, n, false); did != want || err != nil {
			t.Errorf("got %q, %v, want %q", did, err, want)
		}
	}
}

// TestCreateNetworkWithReservedVNI checks that the error names the network that a VNI is reserved for. That network may
// not exist.
func TestCreateNetworkWithReservedVNI(t *testing.T) {
	t.Parallel()
	s := newStore(t, map[string]string{"vnis/5000": "blue"})
	red := isolated(5000)
	red.Name = "red"
	err := CreateNetwork(t.Context(), s, red, false)
	if err == nil || err.Error() != "network red: vni 5000 is reserved for network blue: choose another one" {
		t.Errorf("got %v", err)
	}
	if now := keys(t, s, ""); now != "vnis/5000=blue" {
		t.Errorf("the store has %s", now)
	}
}

// TestDeleteNetworkKeepsAnotherNetworksVNI starts with a store that an administrator edited.
func TestDeleteNetworkKeepsAnotherNetworksVNI(t *testing.T) {
	t.Parallel()
	s := newStore(t, map[string]string{
		"networks/blue": `{"isolated":true,"vni":7,"subnets":[{"cidr":"10.9.0.0/16"}]}`, "vnis/7": "red",
	})
	if err := DeleteNetwork(t.Context(), s, "blue", false); err != nil || keys(t, s, "") != "vnis/7=red" {
		t.Errorf("%v, the store has %s", err, keys(t, s, ""))
	}
}

func TestCreateNetworkRejects(t *testing.T) {
	t.Parallel()
	s := newStore(t, map[string]string{
		"networks/default": `{"subnets":[{"cidr":"10.244.0.0/16"}]}`,
		"networks/red":     `{"isolated":true,"vni":9,"subnets":[{"cidr":"10.9.0.0/16"}]}`,
	})
	before := keys(t, s, "")
	for want, n := range map[string]*cluster.Network{
		"network red exists":                    {Name: "red", Isolated: true, Subnets: isolated(0).Subnets},
		"vni 9 belongs to network red":          isolated(9),
		"overlaps with 10.244.0.0/16":           {Name: "two", Subnets: []cluster.Subnet{{CIDR: netip.MustParsePrefix("10.244.7.0/24")}}},
		"subnets is empty":                      {Name: "none"},
		`the name is "a b"`:                     {Name: "a b", Subnets: isolated(0).Subnets},
		"only an isolated network has peers":    {Name: "p", Peers: []string{"red"}, Subnets: isolated(0).Subnets},
		"cidr is 10.9.0.1/16: want its first":   {Name: "h", Subnets: []cluster.Subnet{{CIDR: netip.MustParsePrefix("10.9.0.1/16")}}},
		"an isolated network can only have vxl": {Name: "b", Isolated: true, Subnets: isolated(0).Subnets, Backends: []cluster.Backend{{Type: cluster.BGP}}},
	} {
		if err := CreateNetwork(t.Context(), s, n, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if now := keys(t, s, ""); now != before {
		t.Errorf("the store was changed: %s", now)
	}
}

func TestNotFoundListsWhatExists(t *testing.T) {
	t.Parallel()
	s := newStore(t, map[string]string{"nodes/a": `{"addresses":["192.0.2.1/24"]}`, "networks/default": `{"subnets":[{"cidr":"10.244.0.0/16"}]}`})
	_, _, err := Network(t.Context(), s, "defualt")
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "there are: default") {
		t.Errorf("a network: %v", err)
	}
	if err := RemoveNode(t.Context(), s, "b", false); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "there are: a") {
		t.Errorf("a node: %v", err)
	}
}

func TestRemoveNodeRefusesALiveNode(t *testing.T) {
	t.Parallel()
	s := newStore(t, map[string]string{"nodes/a": `{"addresses":["192.0.2.1/24"]}`, "alive/a": "x"})
	if err := RemoveNode(t.Context(), s, "a", false); err == nil || !strings.Contains(err.Error(), "On a, type: systemctl stop fairlead-agent") {
		t.Errorf("got %v", err)
	}
	entry, err := s.Get(t.Context(), "alive/a")
	if err == nil {
		_, err = s.Commit(t.Context(), store.Op{Key: "alive/a", Expect: entry.Revision})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := RemoveNode(t.Context(), s, "a", true); err != nil || keys(t, s, "nodes/") == "" {
		t.Errorf("dry run: %v", err)
	}
	if err := RemoveNode(t.Context(), s, "a", false); err != nil || keys(t, s, "") != "" {
		t.Errorf("got %v, the store has %s", err, keys(t, s, ""))
	}
}

// TestRemoveNodeNotKnownToBeDead removes no node that becomes alive meanwhile, or that may be alive.
func TestRemoveNodeNotKnownToBeDead(t *testing.T) {
	t.Parallel()
	s := newStore(t, map[string]string{"nodes/a": `{"addresses":["192.0.2.1/24"]}`})
	if err := RemoveNode(t.Context(), withoutAlive{s}, "a", false); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("if the store does not answer: %v", err)
	}
	starts := &interrupted{s, func() { storetest.Put(t, s, "alive/a", "x") }}
	if err := RemoveNode(t.Context(), starts, "a", false); err == nil || !strings.Contains(err.Error(), "node a is alive") {
		t.Errorf("if its agent starts: %v", err)
	}
	if keys(t, s, "nodes/") == "" {
		t.Error("the node was removed")
	}
}

// withoutAlive is a store that does not answer whether a node is alive.
type withoutAlive struct{ store.Store }

func (w withoutAlive) Get(ctx context.Context, key string) (store.Entry, error) {
	if strings.HasPrefix(key, cluster.AlivePrefix) {
		return store.Entry{}, store.ErrUnavailable
	}
	return w.Store.Get(ctx, key)
}

// interrupted is a store that runs a function before its first commit.
type interrupted struct {
	store.Store
	first func()
}

func (i *interrupted) Commit(ctx context.Context, ops ...store.Op) (int64, error) {
	if f := i.first; f != nil {
		i.first = nil
		f()
	}
	return i.Store.Commit(ctx, ops...)
}

// TestConcurrentClaim lets a node claim a block or an address between the check and the change of a network.
func TestConcurrentClaim(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ key, value, want string }{
		{"blocks/blue/10.9.0.0-26", `{"node":"a","subnet":"10.9.0.0/16"}`, "node a has"},
		{"addresses/blue/10.9.0.7", `{"owner":"x eth0","node":"a"}`, "x eth0"},
	} {
		s := newStore(t, map[string]string{"networks/blue": `{"isolated":true,"subnets":[{"cidr":"10.9.0.0/16"}]}`})
		claim := func() {
			if _, err := s.Commit(t.Context(), store.Op{Key: c.key, Value: []byte(c.value)}); err != nil {
				t.Error(err)
			}
		}
		if err := DeleteNetwork(t.Context(), &interrupted{s, claim}, "blue", false); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("delete next to a claim of %s: %v", c.key, err)
		}
		if _, err := s.Commit(t.Context(), store.Op{Key: c.key, Expect: revisionOf(t, s, c.key)}); err != nil {
			t.Fatal(err)
		}
		other := isolated(0)
		other.Subnets[0].CIDR = netip.MustParsePrefix("10.8.0.0/16")
		if _, err := ApplyNetwork(t.Context(), &interrupted{s, claim}, other, false); err == nil || !strings.Contains(err.Error(), "10.9.0.") {
			t.Errorf("change next to a claim of %s: %v", c.key, err)
		}
	}
}

func revisionOf(t *testing.T, s store.Store, key string) int64 {
	t.Helper()
	e, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return e.Revision
}

// TestConcurrentCreate creates two networks with overlapping subnets at the same time.
func TestConcurrentCreate(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	network := func(name, cidr string) *cluster.Network {
		return &cluster.Network{Name: name, Subnets: []cluster.Subnet{{CIDR: netip.MustParsePrefix(cidr)}}}
	}
	other := func() {
		if err := CreateNetwork(t.Context(), s, network("one", "10.0.0.0/16"), false); err != nil {
			t.Error(err)
		}
	}
	if err := CreateNetwork(t.Context(), &interrupted{s, other}, network("two", "10.0.7.0/24"), false); err == nil || !strings.Contains(err.Error(), "overlaps") {
		t.Errorf("the second network: %v", err)
	}
}

// TestInvalidNetworkIsReplaced replaces and deletes networks that another program made invalid.
func TestInvalidNetworkIsReplaced(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"{", "[]", "null", `{"isolated": "yes"}`, `{"isolated": true, "vni": 7, "subnets": []}`} {
		s := newStore(t, map[string]string{"networks/blue": value, "networks/red": value, "vnis/7": "blue"})
		if did, err := ApplyNetwork(t.Context(), s, isolated(7), false); did != Changed || err != nil {
			t.Errorf("%s: apply: %q, %v", value, did, err)
		}
		if err := DeleteNetwork(t.Context(), s, "red", false); err != nil {
			t.Errorf("%s: delete: %v", value, err)
		}
		const want = `networks/blue={"isolated":true,"subnets":[{"cidr":"10.9.0.0/16"}],"vni":7} vnis/7=blue`
		if got := keys(t, s, ""); got != want {
			t.Errorf("%s: the store has %s, want %s", value, got, want)
		}
	}
}

// TestUnreadableNetworkIsNamed checks that the error of a network that cannot be read has its key.
func TestUnreadableNetworkIsNamed(t *testing.T) {
	t.Parallel()
	s := newStore(t, map[string]string{"networks/blue": "{"})
	if _, _, err := Network(t.Context(), s, "blue"); err == nil || !strings.Contains(err.Error(), "read networks/blue: ") {
		t.Errorf("got %v", err)
	}
}
