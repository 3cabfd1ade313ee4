package config

import (
	"strings"
	"testing"
)

func TestParseNetworks(t *testing.T) {
	t.Parallel()
	const subnet = "subnets: [{cidr: 10.0.0.0/16}]\n"
	for _, c := range []struct{ text, name, want, problem string }{
		{text: "name: a\n" + subnet, want: "a"},
		{text: subnet, name: "b", want: "b"},
		{text: "name: b\n" + subnet, name: "b", want: "b"},
		{text: "name: a\n" + subnet + "---\nname: b\n" + subnet, want: "a b"},
		{text: "---\n# all networks\n---\nname: a\n" + subnet + "---\n", want: "a"},
		{text: "---\n---\n", problem: "the file is empty"},
		{text: "", problem: "the file is empty: want a network"},
		{text: "# nothing\n", problem: "the file is empty: want a network"},
		{text: subnet, problem: "the network has no name"},
		{text: "name: a\n" + subnet, name: "b", problem: `name is "a": the command line says "b"`},
		{text: "name: a\n", problem: "subnets is empty"},
		{text: "name: a\n" + subnet + "speed: 1\n", problem: "speed"},
		{text: "name: [", problem: "net.yaml:1"},
	} {
		all, err := ParseNetworks("net.yaml", []byte(c.text), c.name)
		var got []string
		for _, n := range all {
			got = append(got, n.Name)
		}
		if strings.Join(got, " ") != c.want || (err != nil) != (c.problem != "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%q: %q, %v; want %q, %q", c.text, got, err, c.want, c.problem)
		}
	}
}

func TestOpenStore(t *testing.T) {
	t.Parallel()
	var c Config
	c.Store.File = t.TempDir() + "/store"
	s, err := c.Open()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.List(t.Context(), ""); err != nil {
		t.Error(err)
	}
	s.Close()
	c.Store.Etcd.Endpoints, c.Store.Etcd.PasswordFile = []string{"http://127.0.0.1:1"}, t.TempDir()+"/none"
	if _, err := c.Open(); err == nil || !strings.Contains(err.Error(), "store.etcd.passwordFile") {
		t.Errorf("without the file of the password: %v", err)
	}
}

// TestSecondDocument checks that a second YAML document is an error: nothing would use it.
func TestSecondDocument(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                       "",
		"---\nnode: a\n":                         "",
		"node: a\n---\n":                         "",
		"node: a\n---\n# a comment\n...\n":       "",
		"node: a\n---\nlisten: 127.0.0.1:9479\n": "f:3:1: a second YAML document begins here",
		"node: a\n---\n---\nnode: b\n":           "f:4:1: a second YAML document begins here",
		"node: a\n---\nnode: [\n":                "f:",
	} {
		var c Config
		err := Parse("f", []byte(text), &c)
		if want == "" && (err != nil || text != "" && c.Node != "a") || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%q: node %q, %v; want %q", text, c.Node, err, want)
		}
	}
}
