package podnet_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/podnet"
)

// node is a Manager with its own directories. Its network and pod names are unique, because all tests share one host.
type node struct {
	*podnet.Manager
	t       *testing.T
	n       int
	conf    string // configuration directory
	bin     string
	cache   string
	state   string
	options podnet.Options
	mu      sync.Mutex
	warned  []string
}

// nodes counts the nodes of all tests in the process.
var nodes atomic.Int32

// newNode creates a node. Options choose whether plugins run as processes or in this process.
func newNode(t *testing.T, change ...func(*podnet.Options)) *node {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	must(t, err)
	n := &node{t: t, n: int(nodes.Add(1)), conf: filepath.Join(dir, "net.d"), bin: filepath.Join(dir, "bin"), cache: filepath.Join(dir, "cache"), state: filepath.Join(dir, "pods")}
	must(t, os.Mkdir(n.conf, 0o755))
	must(t, os.Mkdir(n.bin, 0o755))
	for _, p := range plugins.All() {
		must(t, os.Symlink(self, filepath.Join(n.bin, p.Name)))
	}
	n.options = podnet.Options{
		ConfDirs: []string{n.conf}, PluginDirs: []string{n.bin}, CacheDir: n.cache, StateDir: n.state, RunDir: os.Getenv(attach.RootVariable),
		Warn: func(msg string, err error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.warned = append(n.warned, fmt.Sprint(msg, ": ", err))
		},
	}
	for _, c := range change {
		c(&n.options)
	}
	n.again()
	return n
}

func within(o *podnet.Options) { o.Exec = plugins.In(plugin.Env{}) }

// again creates a new Manager, as a restart of the runtime does.
func (n *node) again() {
	n.t.Helper()
	m, err := podnet.New(n.options)
	must(n.t, err)
	n.Manager = m
}

// bridge writes the configuration of a network with its own bridge. Keys are added to the bridge plugin, and more are
// the plugins after it. The first network has a default route.
func (n *node) bridge(file, name string, subnet int, keys string, more ...string) {
	n.t.Helper()
	routes := ""
	if subnet == 1 {
		routes = `, "routes": [{"dst": "0.0.0.0/0"}]`
	}
	n.write(file, fmt.Sprintf(`{"cniVersion": "1.1.0", "name": %q, "plugins": [{"type": "bridge", "bridge": %q, "isGateway": true, %s
  "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.%d.%d.0/24"%s}}%s]}`,
		n.name(name), n.link(name), keys, filepath.Join(n.t.TempDir(), "ipam"), n.n, subnet, routes, strings.Join(append([]string{""}, more...), ",\n ")))
	n.Reload()
}

// name returns the unique name of a network or pod on the host. No name contains another one, because tests search
// files and links for names: the suffix ends each.
func (n *node) name(s string) string { return fmt.Sprintf("%s-%d.node", s, n.n) }

func (n *node) link(s string) string { return fmt.Sprintf("br%d%s", n.n, s[len(s)-1:]) }

func (n *node) write(file, content string) {
	n.t.Helper()
	must(n.t, os.WriteFile(filepath.Join(n.conf, file), []byte(content), 0o644))
}

// script installs a shell script as a plugin. $conf is its configuration.
func (n *node) script(typ, body string) {
	n.t.Helper()
	const head = `#!/bin/sh
conf=$(cat)
`
	const tail = `
case $CNI_COMMAND in
ADD) echo '{"cniVersion":"1.1.0","interfaces":[{"name":"'$CNI_IFNAME'","sandbox":"'$CNI_NETNS'"}]}' ;;
VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}' ;;
esac
`
	must(n.t, os.WriteFile(filepath.Join(n.bin, typ), []byte(head+body+tail), 0o755))
}

// pod returns a pod with a new namespace.
func (n *node) pod(id string, networks ...podnet.Network) podnet.Pod {
	n.t.Helper()
	p := podnet.Pod{ID: n.name(id), Netns: kerneltest.Netns(n.t), Namespace: "shop", Name: id, UID: "u-1", Networks: networks}
	for i, w := range networks {
		if w.Name != "" {
			p.Networks[i].Name = n.name(w.Name)
		}
	}
	return p
}

// links returns the link names of a namespace, without this node's bridges. "" is the host.
func (n *node) links(netns string) string {
	n.t.Helper()
	argv := []string{"ip", "-j", "link", "show"}
	if netns != "" {
		argv = append([]string{"nsenter", "--net=" + netns, "--"}, argv...)
	}
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	must(n.t, err)
	var list []struct {
		Name  string `json:"ifname"`
		State string `json:"operstate"`
	}
	must(n.t, json.Unmarshal(out, &list))
	var names []string
	for _, l := range list {
		names = append(names, l.Name)
	}
	return strings.Join(names, " ")
}

// nothingLeft fails if anything of a pod is left.
func (n *node) nothingLeft(id string) {
	n.t.Helper()
	for _, dir := range []string{n.cache, n.state, os.Getenv(attach.RootVariable), filepath.Dir(n.conf)} {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.Contains(d.Name(), n.name(id)) {
				n.t.Errorf("left behind: %s", path)
			}
			return nil
		})
	}
	if out := kerneltest.Run(n.t, "ip", "-d", "link"); strings.Contains(out, n.name(id)+" ") {
		n.t.Errorf("links are left:\n%s", out)
	}
	n.noAddressHeld(id)
}

// noAddressHeld fails if an address of the pod is still allocated.
func (n *node) noAddressHeld(id string) {
	n.t.Helper()
	root := filepath.Dir(filepath.Dir(n.conf))
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasPrefix(d.Name(), "10.") {
			return nil
		}
		if raw, err := os.ReadFile(path); err == nil && strings.Contains(string(raw), n.name(id)) {
			n.t.Errorf("address %s is held for %s", d.Name(), strings.TrimSpace(string(raw)))
		}
		return nil
	})
}

// editNote changes the stored state of a pod.
func (n *node) editNote(id string, edit func(map[string]any)) {
	n.t.Helper()
	file := filepath.Join(n.state, id+".json")
	raw, err := os.ReadFile(file)
	must(n.t, err)
	var note map[string]any
	must(n.t, json.Unmarshal(raw, &note))
	edit(note)
	raw, err = json.Marshal(note)
	must(n.t, err)
	must(n.t, os.WriteFile(file, raw, 0o600))
}

func (n *node) warnings() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.warned, "\n")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wants fails unless the error contains all words.
func wants(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("got %v, want it to say %q", err, w)
		}
	}
}

// created changes the time at which a pod was set up.
func (n *node) created(p podnet.Pod, when string) {
	n.t.Helper()
	path := filepath.Join(n.state, p.ID+".json")
	raw, err := os.ReadFile(path)
	must(n.t, err)
	changed := regexp.MustCompile(`"created":"[^"]*"`).ReplaceAll(raw, []byte(`"created":"`+when+`"`))
	if bytes.Equal(raw, changed) {
		n.t.Fatalf("no time in %s", raw)
	}
	must(n.t, os.WriteFile(path, changed, 0o600))
}
