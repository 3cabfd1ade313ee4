package compat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/reference"
)

// recorderScript is a plugin that records its requests.
const recorderScript = `#!/bin/sh
n=$(ls "$RECORD" | wc -l)
cat > "$RECORD/$n-$CNI_COMMAND.json"
env | grep '^CNI_' | sort > "$RECORD/$n-$CNI_COMMAND.env"
case $CNI_COMMAND in
ADD) cat "$ANSWER" ;;
VERSION) echo '{"cniVersion": "1.1.0", "supportedVersions": ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]}' ;;
esac
`

// answerOf returns the recorder's result in a version, with every field of that version.
func answerOf(version string) string {
	if !cni.AtLeast(version, "0.3.0") {
		return `{"cniVersion": "` + version + `", "ip4": {"ip": "10.1.0.5/24", "gateway": "10.1.0.1", "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.1"}]},
			"ip6": {"ip": "fd01::5/64"}, "dns": {"nameservers": ["192.0.2.53"]}}`
	}
	family := ""
	if !cni.AtLeast(version, "1.0.0") {
		family = `"version": "4", `
	}
	return `{"cniVersion": "` + version + `",
		"interfaces": [{"name": "eth0", "mac": "02:00:00:00:00:01", "mtu": 1400, "sandbox": "/x", "socketPath": "/s", "pciID": "0000:00:1f.6"}],
		"ips": [{` + family + `"interface": 0, "address": "10.1.0.5/24", "gateway": "10.1.0.1"}],
		"routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.1", "mtu": 1300, "advmss": 1200, "priority": 3, "table": 0, "scope": 0}],
		"dns": {"nameservers": ["192.0.2.53"], "search": ["a"], "options": ["o"], "domain": "d"}}`
}

const recorded = `{"type": "recorder", "capabilities": {"portMappings": true, "ips": false}, "args": {"cni": {"x": [1, 2.50, 1e3]}}, "unknown": {"b": null, "a": "é<&>"}, "dns": {"domain": "d"}},
	{"type": "recorder", "name": "own", "cniVersion": "0.2.0", "runtimeConfig": {"old": 1}, "prevResult": {"stale": true}}`

// requests runs every operation on a network of recorders, and returns what each call received.
func requests(t testing.TB, s side, version string) transcript {
	h := newSideHost(t, s)
	h.container("a")
	for _, d := range []string{"bin", "record"} {
		if err := os.Mkdir(filepath.Join(h.Dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.file("bin/recorder", recorderScript)
	if err := os.Chmod(filepath.Join(h.Dir, "bin/recorder"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.file("answer", answerOf(version))
	h.write(`{"cniVersion": "` + version + `", "name": "net", "plugins": [` + recorded + `]}`)
	h.plugins = filepath.Join(h.Dir, "bin")
	h.more = []string{"RECORD=" + filepath.Join(h.Dir, "record"), "ANSWER=" + filepath.Join(h.Dir, "answer")}
	r := &recorder{host: h, keep: "02:00:00:00:00:01"}
	c := call{netns: "a", capArgs: `{"portMappings": [{"hostPort": 1, "containerPort": 2}], "ips": ["10.1.0.9"], "mac": "x"}`, cniArgs: "IgnoreUnknown=1;A=b"}
	verbs := []string{"add"}
	if cni.AtLeast(version, "0.4.0") {
		verbs = append(verbs, "check")
	}
	if cni.AtLeast(version, "1.1.0") {
		verbs = append(verbs, "status", "gc", "add")
	}
	for _, c.verb = range append(verbs, "del") {
		r.do(c)
		r.note("result cache after "+c.verb, r.files("lib/cni/results", cacheFile))
	}
	r.notes()
	return r.transcript
}

// notes adds the recorded requests to the transcript, without VERSION, because the runtimes may call it differently.
func (r *recorder) notes() {
	entries, err := os.ReadDir(filepath.Join(r.Dir, "record"))
	if err != nil {
		r.T.Fatal(err)
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return len(a.Name()) - len(b.Name()) })
	for _, kind := range []string{".json", ".env"} {
		n := 0
		for _, e := range entries {
			if filepath.Ext(e.Name()) != kind || strings.Contains(e.Name(), "VERSION") {
				continue
			}
			raw, err := os.ReadFile(filepath.Join(r.Dir, "record", e.Name()))
			if err != nil {
				r.T.Fatal(err)
			}
			text := string(raw)
			if kind == ".json" {
				text = jsonLines(text)
			}
			n++
			_, verb, _ := strings.Cut(e.Name(), "-")
			r.note(verb, strings.ReplaceAll(text, r.id(call{netns: "a"}), "ID-a"))
		}
		if n == 0 {
			r.T.Errorf("%v: the recorder was never called", r.side)
		}
	}
}

// sameRequests compares the requests that the two runtimes send.
func sameRequests(t *testing.T, p *page, version string) {
	want := requests(t, side{}, version)
	problems, _ := p.compare("requests "+version, want, requests(t, side{ourRuntime: true}, version))
	for _, problem := range problems {
		t.Error(problem)
	}
}

// installReference installs the reference programs before a test enters its own host, which has no network.
func installReference(t *testing.T) {
	t.Helper()
	reference.Cnitool(t)
	side{}.pluginDir(t)
	if !json.Valid([]byte(answerOf("1.1.0"))) {
		t.Fatal("the recorder's answer is not valid JSON")
	}
}
