package validate

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/examples"
	"github.com/fairlead/fairlead/libcni"
)

func TestPaths(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		at, key, want string
	}{{"", "a.b", "a.b"}, {"plugins[0]", "", "plugins[0]"}, {"plugins[0]", "a", "plugins[0].a"}, {"a", "[1]", "a[1]"}} {
		if got := below(c.at, c.key); got != c.want {
			t.Errorf("below %q %q: %q, want %q", c.at, c.key, got, c.want)
		}
	}
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"ipam.subnet", "ipam.ranges", true}, {"ipam", "ipam.ranges", true}, {"ipam.ranges[0].subnet", "ipam.ranges", true},
		{"mtu", "ipam.subnet", false}, {"mtu", "vlan", true}, {"a[0]", "a[1]", true},
	} {
		if got := related(c.a, c.b); got != c.want {
			t.Errorf("related %q %q: %v", c.a, c.b, got)
		}
	}
}

// TestMissingFile verifies that a report names a file that cannot be read once.
func TestMissingFile(t *testing.T) {
	t.Parallel()
	if got, want := Text(Files([]string{"/no/such.conflist"}, nil)), "/no/such.conflist: no such file or directory\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestListInOtherFile checks that a list whose file runtimes take for a single plugin is a problem, and that a fairlead-chain
// in such a file is none.
func TestListInOtherFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const inside = `"plugins":[{"type":"bridge","ipam":{"type":"host-local","subnet":"10.1.0.0/24"}}]}`
	for file, c := range map[string]struct {
		conf, want string
	}{
		"a.conflist": {`{"cniVersion":"1.0.0","name":"n",` + inside, ""},
		"a.conf":     {`{"cniVersion":"1.0.0","name":"n",` + inside, "runtimes do not read lists from .conf files: rename it to .conflist"},
		"a.json":     {`{"cniVersion":"1.0.0","name":"n",` + inside, "runtimes do not read lists from .json files: rename it to .conflist"},
		"b.conf":     {`{"cniVersion":"1.0.0","name":"n","type":"fairlead-chain",` + inside, ""},
	} {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, []byte(c.conf), 0o600); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, p := range File(path, nil)[0].Problems {
			got += p.Problem
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", file, got, c.want)
		}
	}
}

// TestIPAMPlugin examines IPAM plugins that a runtime calls without a plugin around them.
func TestIPAMPlugin(t *testing.T) {
	t.Parallel()
	for conf, want := range map[string]string{
		`{"cniVersion":"1.0.0","name":"n","type":"host-local","ipam":{"type":"host-local","subnet":"10.1.0.0/24"}}`: "",
		`{"cniVersion":"1.0.0","name":"n","type":"host-local","ipam":{"type":"host-local","subnet":"10.1.0.0/33"}}`: "ipam.subnet",
		`{"cniVersion":"1.0.0","name":"n","type":"whereabouts"}`:                                                    "ipam",
		`{"cniVersion":"1.0.0","name":"n","type":"dhcp"}`:                                                           "ipam",
	} {
		got := ""
		for _, p := range Data([]byte(conf), nil).Problems {
			got += p.Key
		}
		if got != want {
			t.Errorf("%s: problems of %q, want %q", conf, got, want)
		}
	}
}

// TestCollectEnds uses a check that rejects everything without a position: it is reported once.
func TestCollectEnds(t *testing.T) {
	t.Parallel()
	c := &checker{Report: Report{data: []byte(`{"a": 1}`)}}
	c.collect("", c.data, func([]byte) error { return os.ErrInvalid })
	if len(c.Problems) != 1 || c.Problems[0].Problem != os.ErrInvalid.Error() {
		t.Errorf("%+v", c.Problems)
	}
}

// FuzzValidate verifies that the position of every finding is in the file, and that a runtime loads every file without
// problems.
func FuzzValidate(f *testing.F) {
	entries, err := examples.Networks.ReadDir(".")
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range entries {
		raw, err := examples.Networks.ReadFile(e.Name())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge", "vlan": 9000, "mtu": "x", "ipam": {"type": "static", "addresses": [{}]}}]}`))
	f.Add([]byte(`{"plugins": {}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		file := filepath.Join(t.TempDir(), "x.conflist")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		r := File(file, []string{"/nowhere"})[0]
		for _, p := range slices.Concat(r.Problems, r.Warnings) {
			if p.Line > bytes.Count(data, []byte("\n"))+1 || p.Column > len(data)+1 || p.Problem == "" {
				t.Errorf("%+v is not in %q", p, data)
			}
		}
		if _, err := libcni.ConfListFromFile(file); r.OK && err != nil {
			t.Errorf("reported as valid, but: %v", err)
		}
	})
}

// TestSharedAddresses checks the warning about two networks that give one address to two containers.
func TestSharedAddresses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	conf := func(name, keys, ipam string) string {
		path := filepath.Join(dir, name+".conf")
		raw := `{"cniVersion":"1.0.0","name":"` + name + `",` + keys + `,"ipam":{"type":"host-local",` + ipam + `}}`
		if err := os.WriteFile(path, []byte(raw), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const whole = `"subnet":"10.1.0.0/16"`
	first := conf("first", `"type":"bridge"`, whole+`,"rangeEnd":"10.1.127.255"`)
	for name, c := range map[string]struct {
		keys, ipam, place string
	}{
		"same":         {`"type":"bridge","bridge":"cni0"`, whole, "the bridge cni0"},
		"second-range": {`"type":"bridge"`, `"ranges":[[{"subnet":"fd00::/64"}],[{"subnet":"10.1.5.0/24"}]]`, "the bridge cni0"},
		"upper-half":   {`"type":"bridge"`, `"subnet":"10.1.0.0/16","rangeStart":"10.1.128.0"`, ""},
		"beside":       {`"type":"bridge"`, `"subnet":"10.2.0.0/16"`, ""},
		"other-bridge": {`"type":"bridge","bridge":"br1"`, whole, ""},
		"other-vlan":   {`"type":"bridge","vlan":5`, whole, ""},
		"other-plugin": {`"type":"ptp"`, whole, ""},
		"macvlan":      {`"type":"macvlan","master":"eth0"`, whole, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := "", ""
			if c.place != "" {
				want = "network first (" + first + ") gives the same addresses on " + c.place + ": two containers can get one address. Use another subnet or bridge"
			}
			for _, w := range Files([]string{first, conf(name, c.keys, c.ipam)}, nil)[1].Warnings {
				if w.Key == "ipam" {
					got += w.Problem
				}
			}
			if got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}
