package libcni_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/libcni"
)

// host is a plugin directory, a cache, and a log of the plugins' requests in order.
type host struct {
	t          *testing.T
	bin, cache string
	log        string
	cni        *libcni.CNIConfig
	warnings   []string
}

// recorder is a plugin that logs each request. It fails at a verb if its configuration has "fail": "VERB", and waits if
// it has "wait": "VERB".
const recorder = `#!/bin/sh
conf=$(cat)
n=$(ls "%[1]s" | wc -l)
printf '%%s' "$conf" >"%[1]s/$n %[2]s $CNI_COMMAND"
case "$conf" in
*'"fail":"'$CNI_COMMAND'"'*) echo '{"code":50,"msg":"as told"}'; exit 1 ;;
*'"wait":"'$CNI_COMMAND'"'*) exec sleep 100 ;;
esac
case $CNI_COMMAND in
ADD) echo '{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.2/24"}],"interfaces":[{"name":"%[2]s"}],"more":1}' ;;
VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}' ;;
esac
`

func newRuntimeHost(t *testing.T, types ...string) *host {
	t.Helper()
	dir := t.TempDir()
	h := &host{t: t, bin: filepath.Join(dir, "bin"), cache: filepath.Join(dir, "cache"), log: filepath.Join(dir, "log")}
	for _, d := range []string{h.bin, h.log} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, typ := range types {
		if err := os.WriteFile(filepath.Join(h.bin, typ), fmt.Appendf(nil, recorder, h.log, typ), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.cni = libcni.NewCNIConfigWithCacheDir([]string{"/nonexistent", h.bin}, h.cache, nil)
	h.cni.Warn = func(msg string, err error) { h.warnings = append(h.warnings, fmt.Sprint(msg, ": ", err)) }
	return h
}

// calls returns and clears the log: "TYPE VERB" of each call, and their requests.
func (h *host) calls() (string, map[string]string) {
	h.t.Helper()
	entries, err := os.ReadDir(h.log)
	if err != nil {
		h.t.Fatal(err)
	}
	var names []string
	requests := map[string]string{}
	for _, e := range entries {
		file := filepath.Join(h.log, e.Name())
		data, err := os.ReadFile(file)
		if err != nil {
			h.t.Fatal(err)
		}
		_, call, _ := strings.Cut(e.Name(), " ")
		names, requests[call] = append(names, call), string(data)
		if err := os.Remove(file); err != nil {
			h.t.Fatal(err)
		}
	}
	return strings.Join(names, ", "), requests
}

// called reports whether the log has a call.
func (h *host) called(call string) bool {
	entries, err := os.ReadDir(h.log)
	return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), " "+call) })
}

func mustList(t *testing.T, conf string) *libcni.NetworkConfigList {
	t.Helper()
	list, err := libcni.ConfListFromBytes([]byte(conf))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func runtimeConf(container string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: container, NetNS: "/run/netns/x", IfName: "eth0", Args: [][2]string{{"A", "1"}},
		CapabilityArgs: map[string]any{"ips": []string{"10.1.0.9/24"}, "mac": "02:00:00:00:00:01"}}
}
