package delegate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/skel"
)

// picky is a plugin that refuses "mtu": 7 at ADD, with the position of the value, and "keep" at DEL.
const picky = `#!/bin/sh
conf=$(cat)
before=${conf%%%%7*}
case "$CNI_COMMAND $conf" in
ADD*\"mtu\"*) echo '{"code":7,"msg":"the mtu is too small","details":"at line 1, column '$((${#before}+1))' of the configuration that the plugin was given"}'; exit 1 ;;
DEL*\"keep\"*) echo '{"code":11,"msg":"it is busy"}'; exit 1 ;;
ADD*) echo '{"cniVersion":"1.0.0","interfaces":[{"name":"%[1]s"}]}' ;;
VERSION*) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}' ;;
esac
`

// TestChainOfProcesses checks that an error of a member names its position in the chain's configuration, and that an error
// of the undo is reported, too.
func TestChainOfProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"one", "two"} {
		if err := os.WriteFile(filepath.Join(dir, name), fmt.Appendf(nil, picky, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := Chain(&plugin.Exec{})
	args := func(first, second string) *skel.CmdArgs {
		return &skel.CmdArgs{ContainerID: "c", IfName: "eth0", Netns: "/run/netns/c", Path: dir, StdinData: []byte(`{"cniVersion": "1.0.0", "name": "n", "type": "fairlead-chain",
 "plugins": [{"type": "one"` + first + `},
  {"type": "two"` + second + `}]}`)}
	}
	if r, err := p.Funcs.Add(t.Context(), args("", "")); err != nil || r.Interfaces[0].Name != "two" {
		t.Errorf("%+v, %v", r, err)
	}
	_, err := p.Funcs.Add(t.Context(), args("", `, "mtu": 7`))
	if e := cni.AsError(err); e.Code != 7 || e.Msg != "plugins[1] two: the mtu is too small" || e.Details != cni.PositionDetails(3, 26) {
		t.Errorf("got %+v", e)
	}
	_, err = p.Funcs.Add(t.Context(), args(`, "keep": true`, `, "mtu": 7`))
	for _, want := range []string{"plugins[1] two: the mtu is too small", "undo: ", "plugins[0] one: it is busy"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	if err := p.Funcs.Del(t.Context(), args("", `, "keep": true`)); err == nil || !strings.Contains(err.Error(), "plugins[1] two: it is busy") {
		t.Errorf("DEL: %v", err)
	}
}

// TestFlannelInvalidDelegate checks that only DEL and GC proceed with a configuration that sets a key of flannel's.
func TestFlannelInvalidDelegate(t *testing.T) {
	t.Parallel()
	for verb, refused := range map[string]bool{"ADD": true, "CHECK": true, "STATUS": true, "DEL": false, "GC": false} {
		_, err := lease(t, leased).rewrite(verb, &skel.CmdArgs{ContainerID: "c", IfName: "eth0", StdinData: []byte(`{"name": "n", "type": "flannel", "delegate": {"name": "x"}}`)})
		if (err != nil) != refused {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

// TestChainArgs verifies that a chain's args.cni are added to those of its plugins, as a runtime adds them to a list's.
func TestChainArgs(t *testing.T) {
	t.Parallel()
	l, err := read([]byte(`{"cniVersion": "1.0.0", "name": "n", "type": "fairlead-chain", "args": {"cni": {"x": 1, "mtu": 1300}, "labels": "l"},
		"plugins": [{"type": "one", "args": {"cni": {"ips": ["10.0.0.7"], "mtu": 1400}, "own": true}}, {"type": "two"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{`{"cni":{"ips":["10.0.0.7"],"mtu":1300,"x":1},"own":true,"labels":"l"}`, `{"cni":{"x":1,"mtu":1300},"labels":"l"}`} {
		req, err := l.request(&l.members[i], nil)
		args, _ := rawjson.Find(req, "args")
		if err != nil || string(args.Raw) != want {
			t.Errorf("plugin %d: %s, %v, want %s", i, args.Raw, err, want)
		}
	}
	if l, err = read([]byte(`{"name": "n", "args": 5, "plugins": [{"type": "one"}]}`)); err != nil {
		t.Fatal(err)
	}
	if req, err := l.request(&l.members[0], nil); cni.AsError(err).Code != cni.CodeInvalidNetworkConfig {
		t.Errorf("args that are no object: %s, %v", req, err)
	}
}
