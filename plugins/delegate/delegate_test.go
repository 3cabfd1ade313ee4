package delegate

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/skel"
)

const leased = "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\nFLANNEL_MTU=1472\nFLANNEL_IPMASQ=true\n"

// given returns the delegate's configuration for a verb.
func given(t *testing.T, r rewriter, verb, conf string) map[string]any {
	t.Helper()
	c, err := r.rewrite(verb, &skel.CmdArgs{ContainerID: "c", IfName: "eth0", StdinData: []byte(conf)})
	if err != nil {
		t.Fatal(err)
	}
	return same(t, c)
}

func same(t *testing.T, c any) (out map[string]any) {
	t.Helper()
	raw, err := json.Marshal(c)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func lease(t *testing.T, text string) flannel {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "subnet.env"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return flannel{subnetFile: filepath.Join(dir, "subnet.env"), lib: dir}
}

// The delegate gets the keys in flannel's documentation.
func TestFlannelDelegateConf(t *testing.T) {
	t.Parallel()
	both := leased + "FLANNEL_IPV6_NETWORK=fd00:1::/48\nFLANNEL_IPV6_SUBNET=fd00:1:0:17::1/64\n"
	for _, tt := range []struct{ env, conf, want string }{
		{leased, `{"name": "n", "type": "flannel"}`,
			`{"name": "n", "type": "bridge", "mtu": 1472, "ipMasq": false, "isGateway": true,
			  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.17.0/24"}]], "routes": [{"dst": "10.1.0.0/16"}]}}`},
		{strings.Replace(leased, "true", "false", 1), `{"name": "n", "cniVersion": "0.3.1", "type": "flannel", "runtimeConfig": {"mac": "x"}, "delegate": {"bridge": "b0", "mtu": 1400, "isGateway": false}}`,
			`{"name": "n", "cniVersion": "0.3.1", "type": "bridge", "bridge": "b0", "mtu": 1400, "ipMasq": true, "isGateway": false, "runtimeConfig": {"mac": "x"},
			  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.17.0/24"}]], "routes": [{"dst": "10.1.0.0/16"}]}}`},
		{leased, `{"name": "n", "type": "flannel", "delegate": {"type": "ipvlan", "master": "up0", "ipMasq": true}, "ipam": {"type": "other", "dataDir": "/d", "routes": [{"dst": "10.9.0.0/16"}]}}`,
			`{"name": "n", "type": "ipvlan", "master": "up0", "mtu": 1472, "ipMasq": true,
			  "ipam": {"type": "other", "dataDir": "/d", "ranges": [[{"subnet": "10.1.17.0/24"}]], "routes": [{"dst": "10.9.0.0/16"}, {"dst": "10.1.0.0/16"}]}}`},
		{both, `{"name": "n", "type": "flannel"}`,
			`{"name": "n", "type": "bridge", "mtu": 1472, "ipMasq": false, "isGateway": true,
			  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.17.0/24"}], [{"subnet": "fd00:1:0:17::/64"}]], "routes": [{"dst": "10.1.0.0/16"}, {"dst": "fd00:1::/48"}]}}`},
	} {
		var want map[string]any
		if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
			t.Fatal(err)
		}
		if got := given(t, lease(t, tt.env), "ADD", tt.conf); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: delegate gets\n%v, want\n%v", tt.conf, got, want)
		}
	}
}

// DEL uses the configuration that ADD saved, and deletes it. Without it, names are enough.
func TestFlannelSavesConf(t *testing.T) {
	t.Parallel()
	f := lease(t, leased)
	const netconf = `{"name": "n", "type": "flannel", "delegate": {"bridge": "b0"}}`
	added := given(t, f, "ADD", netconf)
	if err := os.Remove(f.subnetFile); err != nil {
		t.Fatal(err)
	}
	args := &skel.CmdArgs{ContainerID: "c", IfName: "eth0", StdinData: []byte(netconf)}
	for _, verb := range []string{"CHECK", "DEL"} {
		if got := given(t, f, verb, netconf); !reflect.DeepEqual(got, added) {
			t.Errorf("%s: %v, ADD had %v", verb, got, added)
		}
	}
	if err := f.done("DEL", args, time.Now()); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(f.lib, "flannel"))
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if got := given(t, f, "DEL", netconf); got["type"] != "bridge" || got["name"] != "n" {
		t.Errorf("without anything: %v", got)
	}
	if _, err := f.rewrite("CHECK", args); cni.AsError(err).Code != cni.CodePluginNotAvailable {
		t.Errorf("CHECK without anything: %v", err)
	}
}

// GC keeps the files of other networks and of other interfaces.
func TestFlannelGC(t *testing.T) {
	t.Parallel()
	f := lease(t, leased)
	add := func(network, id, ifname string) {
		args := &skel.CmdArgs{ContainerID: id, IfName: ifname, StdinData: []byte(`{"name": "` + network + `", "type": "flannel"}`)}
		if _, err := f.rewrite("ADD", args); err != nil {
			t.Fatal(err)
		}
	}
	add("n", "a", "eth0")
	add("n", "b", "eth0")
	add("n", "b", "net1")
	add("other", "d", "eth0")
	time.Sleep(20 * time.Millisecond) // more than one tick of the file timestamps' clock
	start := time.Now()
	time.Sleep(20 * time.Millisecond)
	add("n", "late", "eth0")
	add("n", "future", "eth0") // written before the clock was set back
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(f.lib, "flannel", "future"), later, later); err != nil {
		t.Fatal(err)
	}
	args := &skel.CmdArgs{StdinData: []byte(`{"name": "n", "type": "flannel", "cni.dev/valid-attachments": [{"containerID": "a", "ifname": "eth0"}]}`)}
	if err := f.done("GC", args, start); err != nil {
		t.Fatal(err)
	}
	var left []string
	files, _ := os.ReadDir(filepath.Join(f.lib, "flannel"))
	for _, e := range files {
		left = append(left, e.Name())
	}
	if got := strings.Join(left, " "); got != "a d late" {
		t.Errorf("left: %s", got)
	}
}

func TestSubnetFile(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                       "flanneld has leased no subnet yet",
		"FLANNEL_SUBNET=10.1.17.1\n":             `line 1: FLANNEL_SUBNET=10.1.17.1: netip.ParsePrefix("10.1.17.1"): no '/'`,
		leased + "FLANNEL_MTU=big":               "line 5: FLANNEL_MTU=big: ",
		leased + "FLANNEL_MTU=-1":                "line 5: FLANNEL_MTU=-1: want 0 to 65535 bytes",
		leased + "FLANNEL_IPMASQ=perhaps":        "line 5: FLANNEL_IPMASQ=perhaps: ",
		leased + "# a word\n\nOTHER=1\n":         "",
		strings.ReplaceAll(leased, "\n", "\r\n"): "",
		"FLANNEL_NETWORK=10.1.0.0/16,10.2.0.0/16\nFLANNEL_SUBNET=\"10.1.17.1/24\"\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false": "",
		"FLANNEL_SUBNET=10.1.17.1/24":                        "no FLANNEL_NETWORK, FLANNEL_MTU, FLANNEL_IPMASQ: flanneld writes this file",
		strings.ReplaceAll(leased, "FLANNEL_MTU=1472\n", ""): "no FLANNEL_MTU: ",
	} {
		e, err := parseSubnet(text)
		if want == "" && (err != nil || len(e.subnets) != 1 || len(e.networks) == 0) {
			t.Errorf("%q: %+v, %v", text, e, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzSubnetFile(f *testing.F) {
	f.Add(leased)
	f.Add("FLANNEL_IPV6_SUBNET=fd00::1/64\nFLANNEL_NETWORK=,")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := parseSubnet(text)
		if err == nil && (len(e.subnets) == 0 || e.mtu < 0) {
			t.Errorf("%q was read as %+v", text, e)
		}
	})
}

func TestMiniCNI(t *testing.T) {
	t.Parallel()
	got := given(t, minicni{}, "ADD", `{"cniVersion": "0.1.0", "name": "n", "type": "minicni", "bridge": "b0", "mtu": 1500, "subnet": "10.7.0.0/24"}`)
	var want map[string]any
	_ = json.Unmarshal([]byte(`{"cniVersion": "0.1.0", "name": "n", "type": "bridge", "bridge": "b0", "mtu": 1500, "isDefaultGateway": true, "ipMasq": true,
		"ipam": {"type": "host-local", "subnet": "10.7.0.0/24"}}`), &want)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestErrorOfDelegate checks that a delegate's error about a value has the position in the configuration that the
// delegating plugin was given, or none if that has no such value.
func TestErrorOfDelegate(t *testing.T) {
	t.Parallel()
	mini := "{\"cniVersion\": \"1.0.0\", \"name\": \"n\", \"type\": \"minicni\",\n \"mtu\": 7,\n \"subnet\": \"10.7.0.0/24\"}"
	overlay := "{\"cniVersion\": \"1.0.0\", \"name\": \"n\", \"type\": \"flannel\",\n \"delegate\": {\n  \"hairpinMode\": 1}}"
	for _, c := range []struct {
		by           rewriter
		conf, key    string
		line, column int
	}{
		{minicni{}, mini, "mtu", 2, 9},
		{minicni{}, mini, "ipam.subnet", 3, 12},
		{minicni{}, mini, "ipMasq", 0, 0},
		{lease(t, leased), overlay, "hairpinMode", 3, 18},
		{lease(t, leased), overlay, "mtu", 0, 0},
		{lease(t, leased), overlay, "name", 1, 33},
	} {
		rewritten, err := c.by.rewrite("ADD", &skel.CmdArgs{ContainerID: "c", IfName: "eth0", StdinData: []byte(c.conf)})
		if err != nil {
			t.Fatal(err)
		}
		delegates, err := json.Marshal(rewritten)
		if err != nil {
			t.Fatal(err)
		}
		here := cni.Invalid(delegates, c.key, "refused")
		process := cni.Errorf(cni.CodeInvalidNetworkConfig, "refused").WithDetails(cni.PositionDetails(here.Line, here.Column))
		relocate(fmt.Errorf("x: %w", here), delegates, []byte(c.conf))
		relocate(fmt.Errorf("x: %w", process), delegates, []byte(c.conf))
		want := ""
		if c.line > 0 {
			want = cni.PositionDetails(c.line, c.column)
		}
		if here.Line != c.line || here.Column != c.column || process.Details != want {
			t.Errorf("%s of %s: %d:%d, %q; want %d:%d", c.key, rewritten["type"], here.Line, here.Column, process.Details, c.line, c.column)
		}
	}
	other := cni.Errorf(cni.CodeInvalidNetworkConfig, "refused").WithDetails("see there")
	if relocate(other, []byte("{}"), []byte("{}")); other.Details != "see there" {
		t.Errorf("details without a position became %q", other.Details)
	}
}

// A delegate that this program lacks runs as a process, and must be found first.
func TestUnknownDelegate(t *testing.T) {
	t.Parallel()
	p := serve("flannel", "", lease(t, leased), &plugin.Exec{})
	_, err := p.Funcs.Add(context.Background(), &skel.CmdArgs{ContainerID: "c", IfName: "eth0", Path: t.TempDir(),
		StdinData: []byte(`{"cniVersion": "1.0.0", "name": "n", "type": "flannel", "delegate": {"type": "nosuch"}}`)})
	if err == nil || !strings.Contains(err.Error(), `delegate nosuch: failed to find plugin "nosuch" in path`) {
		t.Error(err)
	}
}

// TestFlannelGCStart verifies that GC keeps the file of an attachment that was added after the runtime had made its list of
// valid attachments, and before GC started.
func TestFlannelGCStart(t *testing.T) {
	f := lease(t, leased)
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "bridge"), []byte("#!/bin/sh\ncat >/dev/null\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // more than one tick of the file timestamps' clock
	t.Setenv(invoke.ListedVariable, strconv.FormatInt(time.Now().UnixNano(), 10))
	time.Sleep(20 * time.Millisecond)
	add := &skel.CmdArgs{ContainerID: "late", IfName: "eth0", StdinData: []byte(`{"name": "n", "type": "flannel"}`)}
	if _, err := f.rewrite("ADD", add); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	args := &skel.CmdArgs{Path: bin, StdinData: []byte(`{"cniVersion": "1.1.0", "name": "n", "type": "flannel", "cni.dev/valid-attachments": []}`)}
	if _, err := (delegating{f, &plugin.Exec{}}).do(t.Context(), "GC", args); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(f.lib, "flannel", "late")); err != nil {
		t.Error(err)
	}
}
