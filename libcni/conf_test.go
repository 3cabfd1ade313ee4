package libcni_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/libcni"
)

func TestNegotiate(t *testing.T) {
	t.Parallel()
	for conf, want := range map[string]string{
		``:                                 "0.1.0",
		`"cniVersion":"",`:                 "0.1.0",
		`"cniVersion":"0.4.0",`:            "0.4.0",
		`"cniVersion":"9.0.0",`:            "9.0.0",
		`"cniVersions":["0.4.0","1.0.0"],`: "1.0.0",
		`"cniVersions":["1.0.0","9.0.0"],`: "1.0.0",
		`"cniVersion":"1.1.0","cniVersions":["0.4.0","1.0.0"],`:  "1.1.0",
		`"cniVersion":"0.3.0","cniVersions":["0.4.0","0.10.0"],`: "0.4.0",
	} {
		list := mustList(t, `{`+conf+`"name":"n","plugins":[{"type":"x"}]}`)
		if list.CNIVersion != want {
			t.Errorf("%s: got %s, want %s", conf, list.CNIVersion, want)
		}
	}
}

// TestBooleanAsString verifies the spellings of booleans that the reference library accepts.
func TestBooleanAsString(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{`true`: true, `"true"`: true, `"True"`: true, `"TRUE"`: true, `false`: false, `"False"`: false, `null`: false} {
		conf := `{"name":"n","disableCheck":%,"disableGC":%,"loadOnlyInlinedPlugins":%,"plugins":[{"type":"x"}]}`
		list := mustList(t, strings.ReplaceAll(conf, "%", value))
		if list.DisableCheck != want || list.DisableGC != want || list.LoadOnlyInlinedPlugins != want {
			t.Errorf("%s: got %+v", value, list)
		}
	}
}

// TestRepeatedPlugins verifies that of several keys plugins the last one counts, as in the reference library, and that
// its plugins get nothing from the others.
func TestRepeatedPlugins(t *testing.T) {
	t.Parallel()
	list := mustList(t, `{"name":"n","plugins":[{"type":"x","ipam":{"type":"i"},"capabilities":{"mac":true}},{"type":"y"}],"plugins":[{"type":"z"}]}`)
	if p := list.Plugins; len(p) != 1 || string(p[0].Bytes) != `{"type":"z"}` || !reflect.DeepEqual(*p[0].Network, cni.PluginConf{Type: "z"}) {
		t.Errorf("got %s, %+v", p[0].Bytes, p[0].Network)
	}
	_, err := libcni.ConfListFromBytes([]byte(`{"name":"n","plugins":[{"type":"x"}],"plugins":[{}]}`))
	if err == nil || !strings.Contains(err.Error(), "plugins[0].type: missing plugin type") {
		t.Errorf("got %v", err)
	}
}

func TestListErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ conf, want string }{
		{``, "1:1: empty: want a JSON object"},
		{`{"name":"n",}`, "1:13: want a key in double quotes, found '}'"},
		{`{"plugins":[{"type":"x"}]}`, "1:1: name: missing network name"},
		{`{"name":"a/b","plugins":[{"type":"x"}]}`, `1:9: name = "a/b": invalid characters`},
		{`{"name":5}`, "1:9: name = 5: want a string"},
		{`{"name":"n","cniVersion":"one"}`, `cniVersion = "one": invalid version`},
		{`{"name":"n","cniVersions":["1.0.0","x"]}`, `1:36: cniVersions[1] = "x": want a version`},
		{`{"name":"n","cniVersions":["9.0.0"],"plugins":[{"type":"x"}]}`, `cniVersions = ["9.0.0"]: none of them is supported`},
		{`{"name":"n","disableCheck":7}`, "disableCheck = 7: want a boolean"},
		{`{"name":"n","plugins":{}}`, "1:23: plugins = {}: want a list"},
		{`{"name":"n","plugins":[]}`, "plugins = []: no plugins in list"},
		{`{"name":"n","loadOnlyInlinedPlugins":true}`, "plugins: missing, though loadOnlyInlinedPlugins is true"},
		{`{"name":"n","plugins":[{"type":"x"},{}]}`, "1:37: plugins[1].type: missing plugin type"},
		{"{\"name\":\"n\",\"plugins\":[\n {\"type\":\"../x\"}]}", `2:10: plugins[0].type = "../x": invalid plugin type`},
		{`{"name":"n","plugins":[{"type":"x","ipam":{"type":"/bin/sh"}}]}`, `plugins[0].ipam.type = "/bin/sh": invalid plugin type`},
		{`{"name":"n","plugins":[{"type":"x","dns":{"search":"a"}}]}`, `plugins[0].dns.search = "a": want a list, each element a string`},
	} {
		_, err := libcni.ConfListFromBytes([]byte(tt.conf))
		if _, ok := errors.AsType[*cni.ConfigError](err); !ok || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s\ngot  %v\nwant %s", tt.conf, err, tt.want)
		}
	}
}

func TestInjectConf(t *testing.T) {
	t.Parallel()
	conf, err := libcni.ConfFromBytes([]byte(`{"type":"x","z":1.0,"a":{"b":  2}}`))
	if err != nil {
		t.Fatal(err)
	}
	with, err := libcni.InjectConf(conf, map[string]any{"name": "n", "z": true})
	if err != nil || string(with.Bytes) != `{"type":"x","z":true,"a":{"b":  2},"name":"n"}` || with.Network.Name != "n" {
		t.Errorf("got %s, %v", with.Bytes, err)
	}
	for _, bad := range []map[string]any{{"": 1}, {"k": nil}, {"k": func() {}}, {"type": 5}} {
		if _, err := libcni.InjectConf(conf, bad); err == nil {
			t.Errorf("%v was injected", bad)
		}
	}
}

func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func types(list *libcni.NetworkConfigList) string {
	var names []string
	for _, p := range list.Plugins {
		names = append(names, p.Network.Type)
	}
	return strings.Join(names, " ")
}

func TestDropIns(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, map[string]string{
		"10.conflist":    `{"cniVersion":"1.0.0","name":"both","plugins":[{"type":"inlined"}]}`,
		"20.conflist":    `{"cniVersion":"1.0.0","name":"dropped"}`,
		"30.conflist":    `{"cniVersion":"1.0.0","name":"empty"}`,
		"40.conflist":    `{"cniVersion":"1.0.0","name":"only","loadOnlyInlinedPlugins":true,"plugins":[{"type":"inlined"}]}`,
		"50.conflist":    `{"cniVersion":"1.0.0","name":"bad","plugins":[{"type":"inlined"}]}`,
		"both/2.conf":    `{"type":"two"}`,
		"both/1.conf":    `{"type":"one"}`,
		"both/3.json":    `{"type":"three"}`,
		"dropped/1.conf": `{"type":"one"}`,
		"only/1.conf":    `{"type":"one"}`,
		"bad/1.conf":     "{\n \"type\": 5}",
	})
	for file, want := range map[string]string{"10.conflist": "inlined one two", "20.conflist": "one", "40.conflist": "inlined"} {
		list, err := libcni.ConfListFromFile(filepath.Join(dir, file))
		if err != nil || types(list) != want {
			t.Errorf("%s: %v", file, err)
		}
	}
	for file, want := range map[string]string{
		"30.conflist": "no plugin configs found", "50.conflist": filepath.Join(dir, "bad", "1.conf") + ":2:10: type = 5: want a string", "60.conflist": "no such file",
	} {
		if _, err := libcni.ConfListFromFile(filepath.Join(dir, file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", file, err, want)
		}
	}
}

// TestNewerNames calls the functions by the names that the reference library has since v1.3.0.
func TestNewerNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "10-n.conflist")
	const list, plugin = `{"cniVersion":"1.1.0","name":"n"}`, `{"cniVersion":"1.1.0","type":"tuning"}`
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "n"), 0o700), os.WriteFile(file, []byte(list), 0o600),
		os.WriteFile(filepath.Join(dir, "n", "10.conf"), []byte(plugin), 0o600)); err != nil {
		t.Fatal(err)
	}
	if l, err := libcni.NetworkConfFromFile(file); err != nil || len(l.Plugins) != 1 || l.Plugins[0].Network.Type != "tuning" {
		t.Errorf("file: %+v, %v", l, err)
	}
	if l, err := libcni.NetworkConfFromBytes([]byte(list)); err != nil || l.Name != "n" || len(l.Plugins) != 0 {
		t.Errorf("bytes: %+v, %v", l, err)
	}
	if p, err := libcni.NetworkPluginConfFromBytes([]byte(plugin)); err != nil || p.Network.Type != "tuning" {
		t.Errorf("plugin: %+v, %v", p, err)
	}
	if p, err := libcni.NetworkPluginConfsFromFiles(dir, "n"); err != nil || len(p) != 1 || p[0].Network.Type != "tuning" {
		t.Errorf("plugins: %+v, %v", p, err)
	}
	if p, err := libcni.NetworkPluginConfsFromFiles(dir, "none"); err != nil || p != nil {
		t.Errorf("no directory: %v, %v", p, err)
	}
}

func TestLoadNetworkConf(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, map[string]string{
		"10-a.conflist":   `{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"x"}]}`,
		"20-bad.conflist": `{"name":"bad" "plugins"}`,
		"30-b.conf":       `{"cniVersion":"0.4.0","name":"b","type":"y","k":  1}`,
		"40-c.json":       `{"name":"c","type":"z"}`,
		"50-x.txt":        `{"name":"x","type":"z"}`,
	})
	for name, want := range map[string]string{"a": "x", "b": "y", "c": "z"} {
		list, err := libcni.LoadNetworkConf(dir, name)
		if err != nil || types(list) != want || list.Name != name {
			t.Errorf("%s: %v, %v", name, list, err)
		}
	}
	if list, err := libcni.LoadConfList(dir, "b"); err != nil || string(list.Plugins[0].Bytes) != `{"cniVersion":"0.4.0","name":"b","type":"y","k":  1}` || list.CNIVersion != "0.4.0" {
		t.Errorf("%v, %v", list, err)
	}
	_, err := libcni.LoadNetworkConf(dir, "bad")
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), `no net configuration with name "bad"`) || !strings.Contains(err.Error(), "20-bad.conflist:1:15: want") {
		t.Errorf("bad: %v", err)
	}
}

func TestLoadNothing(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{t.TempDir(), "/nonexistent"} {
		_, err := libcni.LoadNetworkConf(dir, "a")
		if _, ok := err.(libcni.NoConfigsFoundError); !ok || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %#v", dir, err)
		}
	}
	dir := writeFiles(t, map[string]string{"1.conflist": `{"name":"a","plugins":[{"type":"x"}]}`})
	if _, err := libcni.LoadNetworkConf(dir, "b"); err != (libcni.NotFoundError{Dir: dir, Name: "b"}) {
		t.Errorf("%#v", err)
	}
}

// Requests from every accepted list are JSON and contain the network's name.
func FuzzConfList(f *testing.F) {
	f.Add([]byte(twoPlugins))
	f.Add([]byte(`{"name":"n","cniVersions":["1.0.0"],"plugins":[{"type":"x","type":"y","ipam":{}}],"plugins":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := libcni.ConfListFromBytes(data)
		if err != nil {
			return
		}
		for _, p := range list.Plugins {
			with, err := libcni.InjectConf(p, map[string]any{"name": list.Name})
			if err != nil {
				t.Fatal(err)
			}
			if !json.Valid(with.Bytes) || with.Network.Name != list.Name {
				t.Fatalf("request %s of network %s", with.Bytes, list.Name)
			}
		}
	})
}

// A plugin gets only the capability arguments that it declares, unchanged; its own keys stay as configured.
func FuzzCapabilities(f *testing.F) {
	f.Add([]byte(`{"portMappings":[{"hostPort":80,"containerPort":80,"protocol":"tcp"}],"mac":"02:00:00:00:00:01"}`))
	f.Add([]byte(`{"portMappings":null,"type":"evil","runtimeConfig":{},"ips":["10.0.0.1"]}`))
	list := mustListOf(f, `{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"x","bridge":"b","capabilities":{"portMappings":true,"ips":false}}]}`)
	f.Fuzz(func(t *testing.T, data []byte) {
		var asked map[string]any
		if json.Unmarshal(data, &asked) != nil {
			return
		}
		req, err := list.Request(list.Plugins[0], nil, &libcni.RuntimeConf{ContainerID: "c", IfName: "eth0", CapabilityArgs: asked})
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Type, Bridge, Name string
			RuntimeConfig      map[string]any
		}
		if err := json.Unmarshal(req, &got); err != nil {
			t.Fatalf("%s: %v", req, err)
		}
		want := map[string]any{}
		if v, ok := asked["portMappings"]; ok {
			want["portMappings"] = v
		}
		if got.Type != "x" || got.Bridge != "b" || got.Name != "n" || len(got.RuntimeConfig) != len(want) || len(want) > 0 && !reflect.DeepEqual(got.RuntimeConfig, want) {
			t.Errorf("%s, want runtimeConfig %v", req, want)
		}
	})
}

func mustListOf(f *testing.F, text string) *libcni.NetworkConfigList {
	f.Helper()
	list, err := libcni.ConfListFromBytes([]byte(text))
	if err != nil {
		f.Fatal(err)
	}
	return list
}

// Other runtimes and plugins can use these packages alone.
func TestImports(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".", "../skel").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range strings.Fields(string(out)) {
		rest, ours := strings.CutPrefix(path, "github.com/fairlead/fairlead/")
		if !ours || rest != "libcni" && rest != "skel" && !strings.HasPrefix(rest+"/", "cni/") {
			t.Errorf("imports %s: only the standard library and cni may be used", path)
		}
	}
}
