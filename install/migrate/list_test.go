package migrate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestListsReportWhatASwitchChanges examines one list with keys of each kind, and files that cannot be read.
func TestListsReportWhatASwitchChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	all := Lists([]string{
		write("a.conflist", `{"cniVersion": "1.0.0", "name": "a", "plugins": [
			{"type": "bridge", "ipMasq": true, "mtu": 1400, "unknownKey": 1,
			 "ipam": {"type": "host-local", "subnet": "10.1.0.0/16", "rangestart": "10.1.0.9", "range": 1}},
			{"type": "portmap", "backend": "iptables", "capabilities": {"portMappings": true}},
			{"type": "cilium-cni", "x": 1}]}`),
		write("b.conf", `{"cniVersion": "1.0.0", "name": "b", "type": "macvlan", "args": {"cni": {"mac": "02:00:00:00:00:01"}}}`),
		write("c.conflist", `{"plugins": 3}`),
		filepath.Join(dir, "none.conflist"),
	}, nil)
	if len(all) != 4 || len(all[0].Members) != 3 || len(all[1].Members) != 1 || len(all[2].Members) != 0 || len(all[3].Members) != 0 {
		t.Fatalf("got %+v", all)
	}
	verdicts := map[string]string{}
	for _, l := range all {
		for _, p := range l.Members {
			for _, k := range p.Keys {
				verdicts[p.Type+" "+k.Key+" "+k.Value] = k.Verdict + " " + k.Text
			}
		}
	}
	for key, want := range map[string]string{
		`bridge mtu 1400`:                                    "same",
		`bridge ipMasqBackend (default)`:                     "",
		`bridge ipMasq true`:                                 "changes changes: a set in the nftables table inet fairlead",
		`bridge unknownKey 1`:                                "ignored ignored, by the reference plugin too: bridge has no such key",
		`bridge ipam.subnet "10.1.0.0/16"`:                   "same",
		`bridge ipam.rangestart "10.1.0.9"`:                  "same",
		`bridge ipam.range 1`:                                "ignored ignored, by the reference plugin too: host-local has no such key",
		`portmap backend "iptables"`:                         "changes changes: the names of iptables chains begin with FL-",
		`macvlan args {"cni": {"mac": "02:00:00:00:00:01"}}`: "changes changes: cni.mac is used",
	} {
		if got, ok := verdicts[key]; ok == (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
	if p := all[0].Members[2]; p.Ours || p.Type != "cilium-cni" || len(p.Keys) != 0 {
		t.Errorf("a third-party plugin: %+v", p)
	}
	if len(all[2].Problems) == 0 || len(all[3].Problems) == 0 {
		t.Errorf("unreadable files have no finding: %+v, %+v", all[2], all[3])
	}
}
