package ipam

import (
	"encoding/json"
	"testing"
)

// TestPrecedence requests addresses in three ways at once. Precedence applies per range set.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	const runtime, args = `"runtimeConfig": {"ips": ["10.1.0.7"]}, `, `"args": {"cni": {"ips": ["10.1.0.8/16", "fd00::8"]}}, `
	for _, c := range []struct {
		more, args string
		want       [2]string
	}{
		{"", "", [2]string{"10.1.0.2/16", "fd00::2/64"}},
		{"", "IP=10.1.0.9,fd00::9", [2]string{"10.1.0.9/16", "fd00::9/64"}},
		{args, "IP=10.1.0.9,fd00::9", [2]string{"10.1.0.8/16", "fd00::8/64"}},
		{runtime + args, "IP=10.1.0.9,fd00::9", [2]string{"10.1.0.7/16", "fd00::8/64"}},
		{runtime, "IP=10.1.0.9,fd00::9", [2]string{"10.1.0.7/16", "fd00::9/64"}},
	} {
		conf := `{"cniVersion": "1.1.0", "name": "net", ` + c.more + `"ipam": {"type": "host-local", "dataDir": "` + t.TempDir() +
			`", "ranges": [[{"subnet": "10.1.0.0/16"}], [{"subnet": "fd00::/64"}]]}}`
		var got struct{ IPs []struct{ Address string } }
		out := mustRun(t, ours(HostLocal()), call{verb: "ADD", id: "one", args: c.args, conf: conf})
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.IPs) != 2 || got.IPs[0].Address != c.want[0] || got.IPs[1].Address != c.want[1] {
			t.Errorf("with %s%s: got %v, want %v", c.more, c.args, got.IPs, c.want)
		}
	}
}
