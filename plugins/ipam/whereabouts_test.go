package ipam

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

func whereaboutsOf(keys string) string {
	return `{"cniVersion": "1.0.0", "name": "lan", "ipam": {"type": "whereabouts", ` + keys + `}}`
}

func emptyStore(t *testing.T) func() (store.Store, error) {
	path := filepath.Join(t.TempDir(), "store")
	return func() (store.Store, error) { return store.File(path) }
}

// Whereabouts' own configurations are accepted unchanged, with every key.
func TestWhereaboutsKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	flat, null := filepath.Join(dir, "whereabouts.conf"), filepath.Join(dir, "null.conf")
	if err := os.WriteFile(null, []byte("null"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(flat, []byte(`{"datastore": "kubernetes", "kubernetes": {"kubeconfig": "/x"}, "log_level": "debug", "gateway": "10.9.0.1", "range": "10.8.0.0/24"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	m := newMember(t, "a")
	m.start(emptyStore(t))
	for i, row := range []struct {
		keys string
		args string
		want []string // prefixes of the addresses
	}{
		{`"range": "192.168.2.225/28"`, "", []string{"192.168.2."}},
		{`"range": "192.168.3.0/30", "gateway": "192.168.3.1"`, "", []string{"192.168.3.2/30 192.168.3.1"}},
		{`"range": "192.168.4.0/24", "range_start": "192.168.4.7", "range_end": "192.168.4.7"`, "", []string{"192.168.4.7/24 "}},
		{`"range": "192.168.5.9-192.168.5.9/24"`, "", []string{"192.168.5.9/24 "}},
		{`"range": "192.168.6.0/29", "exclude": ["192.168.6.0/30", "192.168.6.5/32", "192.168.6.6"]`, "", []string{"192.168.6.4/29 "}},
		{`"ipRanges": [{"range": "192.168.7.6-192.168.7.6/29"}, {"range": "fd00:7::/126", "exclude": ["fd00:7::1/128"]}]`, "", []string{"192.168.7.6/29", "fd00:7::"}},
		{`"range": "192.168.8.6-192.168.8.6/29", "addresses": [{"address": "10.10.0.254/24", "gateway": "10.10.0.1"}]`, "", []string{"192.168.8.6/29", "10.10.0.254/24 10.10.0.1"}},
		{`"range": "192.168.9.6-192.168.9.6/29"`, "IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;IP=10.11.0.1/24;GATEWAY=10.11.0.254", []string{"192.168.9.6/29", "10.11.0.1/24 10.11.0.254"}},
		{`"range": "10.9.0.0/30", "configuration_path": "` + flat + `"`, "", []string{"10.9.0.2/30 10.9.0.1"}},
		{`"configuration_path": "` + flat + `"`, "", []string{"10.8.0."}},
		{`"range": "192.168.15.9-192.168.15.9/24", "configuration_path": "` + null + `"`, "", []string{"192.168.15.9/24"}},
		{`"range": "192.168.11.9-192.168.11.9/24", "configuration_path": "/nowhere/whereabouts.conf"`, "", []string{"192.168.11.9/24"}},
		{`"range": "192.168.12.14/28"`, "", []string{"192.168.12.1/28"}}, // as in whereabouts, its first address
		{`"range": "192.168.13.255/24"`, "", []string{"192.168.13.1/24"}},
		{`"range": "192.168.14.5-192.168.14.9/24", "range_start": "192.168.14.7"`, "", []string{"192.168.14.5/24"}},
		{`"range": "192.168.10.6-192.168.10.6/29", "datastore": "etcd", "etcd_host": "10.0.0.1:2379", "etcd_username": "u", "etcd_password": "p", "etcd_key_file": "k", "etcd_cert_file": "c",
		  "etcd_ca_cert_file": "a", "kubernetes": {"kubeconfig": "/k", "k8s_api_root": "https://x"}, "log_file": "/l", "log_level": "debug", "sleep_for_race": 0,
		  "node_slice_size": "/28", "leader_lease_duration": 1500, "leader_renew_deadline": 1000, "leader_retry_period": 500, "network_name": "blue"`, "", []string{"192.168.10.6/29"}},
	} {
		c := call{verb: "ADD", id: fmt.Sprint("c", i), args: row.args, conf: whereaboutsOf(row.keys)}
		code, out := m.plugin("whereabouts", c)
		if code != 0 {
			t.Errorf("%s: %s", row.keys, out)
			continue
		}
		got := ipsOf(t, out)
		if !slices.EqualFunc(got, row.want, strings.HasPrefix) {
			t.Errorf("%s: got %v, want %v", row.keys, got, row.want)
		}
		for _, verb := range []string{"CHECK", "DEL", "DEL"} {
			c.verb = verb
			if code, out := m.plugin("whereabouts", c); code != 0 {
				t.Errorf("%s: %s: %s", verb, row.keys, out)
			}
		}
		c.verb = "CHECK"
		if code, _ := m.plugin("whereabouts", c); code == 0 {
			t.Errorf("%s: an address is left after DEL", row.keys)
		}
	}
}

// An address is allocated once per network_name, in whatever range, unless overlapping ranges are configured as
// separate.
func TestWhereaboutsOverlap(t *testing.T) {
	t.Parallel()
	m := newMember(t, "a")
	m.start(emptyStore(t))
	add := func(id, keys string) (int, string) {
		return m.plugin("whereabouts", call{verb: "ADD", id: id, conf: whereaboutsOf(keys)})
	}
	const one, wide = `"range": "192.168.2.9-192.168.2.9/28"`, `"range": "192.168.2.9-192.168.2.9/24"`
	if code, out := add("a", one); code != 0 {
		t.Fatal(out)
	}
	if code, out := add("b", wide); code == 0 || !strings.Contains(out, "all addresses are in use") {
		t.Errorf("given twice: %s", out)
	}
	for id, keys := range map[string]string{"c": wide + `, "network_name": "blue"`, "d": wide + `, "enable_overlapping_ranges": false`, "e": one + `, "enable_overlapping_ranges": false`} {
		if code, out := add(id, keys); code != 0 {
			t.Errorf("%s: %s", keys, out)
		}
	}
	if code, out := add("a", one); code == 0 || !strings.Contains(out, "duplicate allocation") {
		t.Errorf("a second ADD: %s", out)
	}
	// DEL and GC find what ADD allocated, even if the configuration has changed.
	if code, out := m.plugin("whereabouts", call{verb: "DEL", id: "a", conf: whereaboutsOf(`"range": "nonsense"`)}); code != 0 {
		t.Error(out)
	}
	kerneltest.Until(t, func() bool { code, _ := add("f", one); return code == 0 })
	time.Sleep(20 * time.Millisecond) // a process's start has a resolution of 10 ms
	gc := strings.Replace(whereaboutsOf(one), `"ipam"`, `"cni.dev/valid-attachments": [], "ipam"`, 1)
	if code, out := m.plugin("whereabouts", call{verb: "GC", conf: strings.Replace(gc, "1.0.0", "1.1.0", 1)}); code != 0 {
		t.Error(out)
	}
	kerneltest.Until(t, func() bool { code, _ := add("g", one); return code == 0 })
}

func TestWhereaboutsErrors(t *testing.T) {
	t.Parallel()
	m := newMember(t, "a")
	empty := filepath.Join(t.TempDir(), "empty.conf")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for keys, want := range map[string]string{
		`"range": "10.0.0.0/24", "configuration_path": "` + empty + `"`: `.configuration_path = "` + empty + `": the defaults in ` + empty + `: 1:1: empty: want a JSON object`,
		`"gateway": "10.0.0.1"`:                                                      `ipam.range: missing`,
		`"range": "10.0.0.0"`:                                                        `ipam.range = "10.0.0.0": want a range like`,
		`"range": "10.0.0.9-10.1/24"`:                                                `want a range like`,
		`"range": "10.2.0.1-10.1.0.3/24"`:                                            `want a range like`,
		`"range": "10.0.0.0/24", "range_start": "10.1.0.1"`:                          `ipam.range_start = "10.1.0.1": `,
		`"range": "10.0.0.0/24", "range_end": "10.1.0.1"`:                            `ipam.range_end = "10.1.0.1": `,
		`"range": "10.0.0.9-10.0.0.3/24"`:                                            `ipam.range = "10.0.0.9-10.0.0.3/24": the range starts after its end`,
		`"range": "10.0.0.0/24", "range_start": "10.0.0.9", "range_end": "10.0.0.3"`: `ipam.range_start = "10.0.0.9": the range starts after its end`,
		`"range": "10.0.0.0/31"`:                                                     `too small`,
		`"range": "10.0.0.0/24", "exclude": ["x"]`:                                   `ipam.exclude[0] = "x": `,
		`"range": "10.0.0.0/24", "exclude": ["10.0.0.0/16"]`:                         `the exclusions cover the whole range`,
		`"ipRanges": [{"range": "10.0.0.0/24"}, {"range": "y"}]`:                     `ipam.ipRanges[1].range = "y": `,
		`"range": "10.0.0.0/24", "network_name": "a/b"`:                              `ipam.network_name = "a/b": `,
		`"range": "10.0.0.0/24", "addresses": [{"gateway": "10.0.0.1"}]`:             `ipam.addresses[0].address`,
		`"range": "10.0.0.0/24", "configuration_path": "/"`:                          `ipam.configuration_path = "/": `,
		`"range": "10.0.0.0/24", "routes": [{"gw": "10.0.0.1"}]`:                     `ipam.routes[0].dst`,
	} {
		code, out := m.plugin("whereabouts", call{verb: "ADD", id: "c", conf: whereaboutsOf(keys)})
		if code == 0 {
			t.Errorf("%s is accepted", keys)
			continue
		}
		if have, msg := message(t, out); have != 7 || !strings.Contains(msg, want) {
			t.Errorf("%s: %d, %s", keys, have, msg)
		}
	}
	for _, verb := range []string{"ADD", "STATUS"} {
		code, out := m.plugin("whereabouts", call{verb: verb, id: "c", conf: strings.Replace(whereaboutsOf(`"range": "10.0.0.0/24"`), "1.0.0", "1.1.0", 1)})
		if code == 0 {
			t.Fatalf("%s without the agent: %s", verb, out)
		}
		if have, msg := message(t, out); have != map[string]uint{"ADD": 11, "STATUS": 50}[verb] || !strings.Contains(msg, "the agent does not answer at") {
			t.Errorf("%s: %d, %s", verb, have, msg)
		}
	}
}

// Ranges of one subnet are allocated together, also if another range is between them.
func TestWhereaboutsSubnetTwice(t *testing.T) {
	t.Parallel()
	m := newMember(t, "a")
	m.start(emptyStore(t))
	c := call{verb: "ADD", id: "c", conf: whereaboutsOf(`"enable_overlapping_ranges": false, "ipRanges": [{"range": "192.168.2.8-192.168.2.8/24"},
		{"range": "fd00:7::/126"}, {"range": "192.168.2.9-192.168.2.9/24"}]`)}
	code, out := m.plugin("whereabouts", c)
	if code != 0 {
		t.Fatal(out)
	}
	if got := ipsOf(t, out); !slices.EqualFunc(got, []string{"192.168.2.8/24", "192.168.2.9/24", "fd00:7::"}, strings.HasPrefix) {
		t.Errorf("got %v", got)
	}
}

// The network address and IPv4's broadcast address are never allocated, also if a range includes them.
func TestWhereaboutsBounds(t *testing.T) {
	t.Parallel()
	m := newMember(t, "a")
	m.start(emptyStore(t))
	for i, keys := range []string{
		`"range": "10.0.1.0/30", "range_start": "10.0.1.0", "range_end": "10.0.1.3"`,
		`"range": "10.0.2.0-10.0.2.3/30"`,
		`"ipRanges": [{"range": "10.0.3.0/30", "range_start": "10.0.3.0", "range_end": "10.0.3.3"}]`,
	} {
		var got []string
		for n := range 3 {
			code, out := m.plugin("whereabouts", call{verb: "ADD", id: fmt.Sprintf("c%d-%d", i, n), conf: whereaboutsOf(keys)})
			if code == 0 {
				got = append(got, strings.TrimSpace(ipsOf(t, out)[0]))
			} else if n < 2 {
				t.Errorf("%s: %s", keys, out)
			}
		}
		slices.Sort(got)
		net := fmt.Sprintf("10.0.%d.", i+1)
		if want := []string{net + "1/30", net + "2/30"}; !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", keys, got, want)
		}
	}
}
