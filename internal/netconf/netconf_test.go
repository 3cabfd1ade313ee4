package netconf_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/internal/netconf"
	"github.com/fairlead/fairlead/libcni"
)

// TestLists checks that Lists chooses the files that LoadNetworkConf chooses: a list before a single configuration, and
// the first of several.
func TestLists(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"10-z.conf":      `{"cniVersion":"1.0.0","name":"a","type":"conf"}`,
		"11-b.json":      `{"cniVersion":"1.0.0","name":"b","type":"json"}`,
		"12-b.conf":      `{"cniVersion":"1.0.0","name":"b","type":"later"}`,
		"20-a.conflist":  `{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"list"}]}`,
		"21-a.conflist":  `{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"later"}]}`,
		"30-c.conflist":  `{"cniVersion":"1.0.0","name":"c","plugins":[{"type":"list"}]}`,
		"31-no.conflist": `{`,
		"32-no.conf":     `{"cniVersion":"1.0.0","name":"no"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := ""
	for _, l := range netconf.Lists(dir) {
		got += fmt.Sprintf("%s:%s ", l.Name, l.Plugins[0].Network.Type)
		want, err := libcni.LoadNetworkConf(dir, l.Name)
		if want == nil || string(l.Bytes) != string(want.Bytes) {
			t.Errorf("network %s: %s; LoadNetworkConf: %v, %v", l.Name, l.Bytes, want, err)
		}
	}
	if want := "a:list b:json c:list "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
