package ipam

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// hostLocalCalls returns configurations that both implementations accept. The test replaces DIR with the data directory
// and RESOLV with a resolv.conf.
func hostLocalCalls() []call {
	conf := func(version, ipam, more string) string {
		return `{"cniVersion": "` + version + `", "name": "net", "type": "bridge", ` + more +
			`"ipam": {"type": "host-local", "dataDir": "DIR", ` + ipam + `}}`
	}
	const dual = `"ranges": [[{"subnet": "10.1.2.0/28"}], [{"subnet": "fd00:1::/64"}]]`
	return []call{
		{conf: conf("1.1.0", `"subnet": "10.1.2.0/24"`, "")},
		{conf: conf("1.0.0", `"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.20", "rangeEnd": "10.1.2.21", "gateway": "10.1.2.254"`, "")},
		{conf: conf("0.3.1", `"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.1", "rangeEnd": "10.1.2.9"`, "")},
		{conf: conf("0.4.0", `"subnet": "10.1.2.0/30"`, "")},
		{conf: conf("1.1.0", `"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.0", "rangeEnd": "10.1.2.255"`, "")},
		{conf: conf("1.1.0", `"subnet": "10.1.2.0/24", "gateway": ""`, "")},
		{conf: conf("1.1.0", dual, "")},
		{conf: conf("0.2.0", dual, "")},
		{conf: conf("", dual, "")},
		{conf: conf("1.1.0", `"subnet": "10.9.0.0/24", `+dual, "")},
		{conf: conf("1.1.0", `"ranges": [[{"subnet": "10.1.2.0/30"}, {"subnet": "10.1.3.0/30"}]]`, "")},
		{conf: conf("1.1.0", `"subnet": "10.9.0.0/24"`, `"runtimeConfig": {"ipRanges": [[{"subnet": "10.8.0.0/24"}], [{"subnet": "fd09::/32", "rangeStart": "fd09::ffff"}]]}, `)},
		{conf: conf("1.1.0", `"subnet": "fd00::/8", "rangeStart": "fd00::fe"`, "")},
		{conf: conf("1.1.0", `"subnet": "fd00::/126"`, "")},
		{conf: conf("1.1.0", `"subnet": "10.1.2.0/24", "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.3.1.1/8", "gw": "10.1.2.9",
			"mtu": 1300, "advmss": 1260, "priority": 3, "table": 0, "scope": 253}, {"dst": "fd00::/8", "gw": "fd00::1"}]`, "")},
		{conf: conf("1.0.0", `"subnet": "10.1.2.0/24", "routes": [{"dst": "10.0.0.0/8", "mtu": 1300}]`, "")},
		{conf: conf("1.1.0", `"subnet": "10.1.2.0/24", "resolvConf": "RESOLV"`, "")},
		{args: "IP=10.1.2.9", conf: conf("1.1.0", dual, "")},
		{args: "IP=fd00:1::ffff:9/120", conf: conf("1.1.0", dual, "")},
		{args: "IP=", conf: conf("1.1.0", dual, "")},
		{args: "IgnoreUnknown=1;K8S_POD_NAME=x;IP=10.1.2.3", conf: conf("1.1.0", dual, "")},
		{conf: conf("1.1.0", dual, `"args": {"cni": {"ips": ["10.1.2.7"]}}, `)},
		{conf: conf("1.1.0", dual, `"args": {"cni": {"ips": ["10.1.2.7"]}}, "runtimeConfig": {"ips": ["fd00:1::7/64"]}, `)},
		{conf: conf("1.1.0", dual, `"runtimeConfig": {"ips": ["fd00:1::7/64", "10.1.2.5"]}, `)},
		{conf: conf("1.1.0", dual, `"runtimeConfig": {"ips": ["10.1.2.5", "10.1.2.5"]}, `)},
	}
}

const resolvConf = "; a comment\n# another\nnameserver 192.0.2.1\nnameserver 192.0.2.2 192.0.2.3\n" +
	"domain old.example\ndomain example\nsearch a b\nsearch c\n options ndots:2 rotate\nnameserver\nsortlist 10.0.0.0\n"

// TestHostLocalAsReference runs the same calls with both implementations in separate directories, and compares results
// and files.
func TestHostLocalAsReference(t *testing.T) {
	t.Parallel()
	reference := referenceOf(t, "host-local")
	for _, c := range hostLocalCalls() {
		t.Run(c.conf+c.args, func(t *testing.T) {
			t.Parallel()
			a, b := t.TempDir(), t.TempDir()
			resolv := filepath.Join(t.TempDir(), "resolv.conf")
			if err := os.WriteFile(resolv, []byte(resolvConf), 0o600); err != nil {
				t.Fatal(err)
			}
			c.conf = strings.ReplaceAll(c.conf, "RESOLV", resolv)
			for _, step := range []call{{verb: "ADD", id: "one"}, {verb: "ADD", id: "two"}, {verb: "DEL", id: "one"}, {verb: "ADD", id: "three"}} {
				if step.id != "one" {
					// a requested address is taken by now
					step.args, step.conf = "", withoutRequests(c.conf)
				} else {
					step.args, step.conf = c.args, c.conf
				}
				bothAgree(t, step, a, b, reference)
			}
		})
	}
}

func withoutRequests(conf string) string {
	return strings.NewReplacer(`"ips"`, `"notips"`).Replace(conf)
}

func bothAgree(t *testing.T, step call, a, b string, reference runner) {
	t.Helper()
	ourCall, theirCall := step, step
	ourCall.conf = strings.ReplaceAll(step.conf, "DIR", a)
	theirCall.conf = strings.ReplaceAll(step.conf, "DIR", b)
	code, out := ours(HostLocal())(t, ourCall)
	theirCode, theirOut := reference(t, theirCall)
	if code != theirCode {
		t.Fatalf("%s %s: ours exits with %d, the reference plugin with %d\n%s\n%s", step.verb, step.id, code, theirCode, out, theirOut)
	}
	if code == 0 && step.verb == "ADD" {
		sameJSON(t, out, theirOut)
	}
	if got, want := files(t, a+"/net"), files(t, b+"/net"); !maps.Equal(got, want) {
		t.Errorf("after %s %s the directories differ\nours:      %q\nreference: %q", step.verb, step.id, got, want)
	}
}

// TestStaticAsReference does the same for static.
func TestStaticAsReference(t *testing.T) {
	t.Parallel()
	conf := func(version, ipam, more string) string {
		return `{"cniVersion": "` + version + `", "name": "net", "type": "bridge", ` + more + `"ipam": {"type": "static", ` + ipam + `}}`
	}
	const one = `"addresses": [{"address": "10.1.2.3/24", "gateway": "10.1.2.1"}]`
	const bare = `"addresses": [{"address": "10.1.2.3/24"}]`
	reference := referenceOf(t, "static")
	for _, c := range []call{
		{conf: conf("1.1.0", one, "")},
		{conf: conf("0.2.0", one, "")},
		{conf: conf("1.1.0", `"addresses": []`, "")},
		{conf: conf("1.1.0", `"addresses": [{"address": "10.1.2.3/32", "gateway": "169.254.1.1"}, {"address": "fd00::5/64"}, {"address": "fd00::6/64"}]`, "")},
		{conf: conf("1.1.0", one+`, "routes": [{"dst": "0.0.0.0/0", "mtu": 1400, "table": 0, "scope": 0}],
			"dns": {"nameservers": ["192.0.2.1"], "domain": "d", "search": ["s"], "options": ["o"]}`, "")},
		{args: "IP=10.9.0.4/24, fd01::4/64;GATEWAY=10.9.0.1,fd01::1", conf: conf("1.1.0", one, "")},
		{args: "IP=10.1.2.4/24;GATEWAY=10.1.2.9", conf: conf("1.1.0", bare, "")},
		{args: "GATEWAY=10.1.2.9", conf: conf("1.1.0", bare, "")},
		{args: "GATEWAY=10.7.2.9", conf: conf("1.1.0", one, "")},
		{args: "IgnoreUnknown=true;X=1", conf: conf("1.1.0", one, "")},
		{args: "IP=10.9.0.4/24;GATEWAY=10.9.0.1", conf: conf("1.1.0", one, `"args": {"cni": {"ips": ["10.5.0.1/16"]}}, `)},
		{args: "IP=10.9.0.4/24", conf: conf("1.1.0", one, `"args": {"cni": {"ips": ["10.5.0.1/16"]}}, "runtimeConfig": {"ips": ["10.6.0.1/16", "fd09::1/64"]}, `)},
	} {
		t.Run(c.conf+c.args, func(t *testing.T) {
			t.Parallel()
			c.verb, c.id = "ADD", "one"
			sameJSON(t, mustRun(t, ours(Static()), c), mustRun(t, reference, c))
		})
	}
}
