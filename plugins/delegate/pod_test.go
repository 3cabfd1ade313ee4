package delegate

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/skel"
)

// logging is a plugin that appends its command, interface and configuration to a log. It refuses a configuration with
// the word "refuse" and its command.
const logging = `#!/bin/sh
conf=$(cat)
echo "$CNI_COMMAND $CNI_IFNAME $conf" >> %[1]s
case "$conf" in *refuse$CNI_COMMAND*) echo '{"code":11,"msg":"it is busy"}'; exit 1 ;; esac
case "$CNI_COMMAND" in
ADD) echo '{"cniVersion":"1.0.0","interfaces":[{"name":"'$CNI_IFNAME'","sandbox":"/x"}]}' ;;
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}' ;;
esac
`

// podHost is a host with the plugin "one".
type podHost struct {
	t     *testing.T
	dir   local.Dir
	state podstate.Dir
	bin   string
	log   string
	confs string
}

func newPodHost(t *testing.T) *podHost {
	t.Helper()
	run, err := os.MkdirTemp("", "fl") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	h := &podHost{t: t, dir: local.Open(t.TempDir(), run), bin: t.TempDir(), log: filepath.Join(run, "log"), confs: t.TempDir()}
	t.Setenv(local.LibVariable, filepath.Dir(h.dir.Root()))
	t.Setenv(local.RunVariable, run)
	h.state = podstate.Open(h.dir)
	h.file(filepath.Join(h.bin, "one"), fmt.Sprintf(logging, h.log))
	return h
}

func (h *podHost) file(path, text string) {
	h.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		h.t.Fatal(err)
	}
}

func (h *podHost) define(name, config, resource string) {
	h.t.Helper()
	if err := h.state.WriteDefinition(podstate.Definition{Namespace: "shop", Name: name, Config: config, Resource: resource}); err != nil {
		h.t.Fatal(err)
	}
}

// args returns a call for a pod with annotations, as JSON.
func (h *podHost) args(annotations string) *skel.CmdArgs {
	return &skel.CmdArgs{
		ContainerID: "c", IfName: "eth0", Netns: "/run/netns/c", Path: h.bin, Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID=u",
		StdinData: []byte(`{"cniVersion": "1.0.0", "name": "pods", "type": "fairlead-pod", "confDirs": ["` + h.confs + `"], "args": {"a": 1},
			"runtimeConfig": {"io.kubernetes.cri.pod-annotations": ` + annotations + `}, "plugins": [{"type": "one", "default": true}]}`),
	}
}

// calls returns the calls of the plugin since the last time.
func (h *podHost) calls() []string {
	raw, _ := os.ReadFile(h.log)
	os.Remove(h.log)
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}

// serve runs the agent's socket.
func (h *podHost) serve(handlers map[string]address.Handler) {
	h.t.Helper()
	l, err := address.Listen(h.dir.Socket())
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = (&address.Server{Handlers: handlers}).Serve(ctx, l) }()
	h.t.Cleanup(func() { stop(); <-done })
}

func wantCalls(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("calls:\n%s\nwant %d", strings.Join(got, "\n"), len(want))
	}
	for i := range want {
		for _, part := range strings.Fields(want[i]) {
			if !strings.Contains(got[i], part) {
				t.Errorf("call %d is %s, want %q in it", i, got[i], part)
			}
		}
	}
}

// TestPodOrder checks the order of ADD and DEL, and that DEL continues after an error and repeats what failed.
func TestPodOrder(t *testing.T) {
	h := newPodHost(t)
	p := Pod(&plugin.Exec{})
	h.define("last", `{"cniVersion": "1.0.0", "type": "one", "linkInContainer": true}`, "")
	h.define("busy", `{"cniVersion": "1.0.0", "name": "other", "type": "one", "x": "refuseDEL"}`, "")
	args := h.args(`{"k8s.v1.cni.cncf.io/networks": "last,busy"}`)
	r, err := p.Funcs.Add(t.Context(), args)
	if err != nil || r.Interfaces[0].Name != "eth0" {
		t.Fatalf("%+v, %v", r, err)
	}
	wantCalls(t, h.calls(), `ADD eth0 "name":"pods" "args": "default":`, `ADD net2 "name":"other"`, `ADD net1 "name":"last"`)
	if err := p.Funcs.Check(t.Context(), args); err != nil {
		t.Error(err)
	}
	wantCalls(t, h.calls(), `CHECK eth0 prevResult`, `CHECK net2 prevResult`, `CHECK net1 prevResult`)
	err = p.Funcs.Del(t.Context(), args)
	if err == nil || !strings.Contains(err.Error(), "network shop/busy: interface net2: plugins[0] one: it is busy") || cni.AsError(err).Code != 11 {
		t.Errorf("DEL: %v", err)
	}
	wantCalls(t, h.calls(), `DEL net1 prevResult`, `DEL net2`, `DEL eth0`)
	if err := p.Funcs.Check(t.Context(), args); err == nil || !strings.Contains(err.Error(), "was interrupted: run DEL") {
		t.Errorf("CHECK after a failed DEL: %v", err)
	}
	h.calls()
	if p.Funcs.Del(t.Context(), args) == nil {
		t.Error("the second DEL forgets the network that fails")
	}
	wantCalls(t, h.calls(), `DEL net2`)
}

// TestPodConfigurationOfCheck checks that CHECK has the bytes of the ADD's configuration, as from other runtimes. A plugin
// that sees another configuration computes the objects again, and may report differences that nobody caused.
func TestPodConfigurationOfCheck(t *testing.T) {
	h := newPodHost(t)
	p := Pod(&plugin.Exec{})
	h.define("lan", `{"cniVersion": "1.0.0", "type": "one", "capabilities": {"mac": true}, "list": [1,  2], "text": "<&>"}`, "")
	args := h.args(`{"k8s.v1.cni.cncf.io/networks": "[{\"name\": \"lan\", \"mac\": \"02:00:00:00:00:05\"}]"}`)
	if _, err := p.Funcs.Add(t.Context(), args); err != nil {
		t.Fatal(err)
	}
	added := h.calls()
	if err := p.Funcs.Check(t.Context(), args); err != nil {
		t.Fatal(err)
	}
	for i, call := range h.calls() {
		conf, err := rawjson.ParseObject([]byte(call[strings.Index(call, "{"):]))
		if err != nil {
			t.Fatal(err)
		}
		conf.Delete("prevResult")
		if want := added[i][strings.Index(added[i], "{"):]; string(conf.Bytes()) != want {
			t.Errorf("CHECK has %s, want %s", call, want)
		}
	}
}

// TestPodDisableCheck checks that a network's disableCheck may be a text, as for runtimes.
func TestPodDisableCheck(t *testing.T) {
	h := newPodHost(t)
	p := Pod(&plugin.Exec{})
	h.define("text", `{"cniVersion": "1.0.0", "disableCheck": "True", "plugins": [{"type": "one"}]}`, "")
	args := h.args(`{"k8s.v1.cni.cncf.io/networks": "text"}`)
	if _, err := p.Funcs.Add(t.Context(), args); err != nil {
		t.Fatal(err)
	}
	h.calls()
	if err := p.Funcs.Check(t.Context(), args); err != nil {
		t.Error(err)
	}
	wantCalls(t, h.calls(), "CHECK eth0")
}

// TestPodVersions checks that a network's cniVersions select its version, as in a runtime.
func TestPodVersions(t *testing.T) {
	h := newPodHost(t)
	p := Pod(&plugin.Exec{})
	h.define("several", `{"cniVersions": ["0.4.0", "1.0.0", "9.0.0"], "plugins": [{"type": "one"}]}`, "")
	h.define("newer", `{"cniVersions": ["9.0.0"], "plugins": [{"type": "one"}]}`, "")
	if _, err := p.Funcs.Add(t.Context(), h.args(`{"k8s.v1.cni.cncf.io/networks": "several"}`)); err != nil {
		t.Fatal(err)
	}
	wantCalls(t, h.calls(), `ADD eth0`, `ADD net1 "cniVersion":"1.0.0"`)
	args := h.args(`{"k8s.v1.cni.cncf.io/networks": "newer"}`)
	args.ContainerID = "d"
	if _, err := p.Funcs.Add(t.Context(), args); err == nil || !strings.Contains(err.Error(), `cniVersions = ["9.0.0"]: none of them is supported`) {
		t.Errorf("got %v", err)
	}
}

// TestPodEmptyDefaultRoute checks that a network with an empty list keeps the default route of its configuration, and
// that the others lose theirs.
func TestPodEmptyDefaultRoute(t *testing.T) {
	h := newPodHost(t)
	h.define("lan", `{"cniVersion": "1.0.0", "type": "one", "isDefaultGateway": true, "ipam": {"type": "host-local", "routes": [{"dst": "0.0.0.0/0", "gw": "192.168.7.1"}]}}`, "")
	h.define("cluster", `{"cniVersion": "1.0.0", "type": "one", "ipam": {"type": "fairlead-ipam"}}`, "")
	for name, want := range map[string]string{"lan": `ADD net1 "isDefaultGateway":true "gw":"192.168.7.1"`, "cluster": `ADD net1 "defaultRoute":true`} {
		args := h.args(`{"k8s.v1.cni.cncf.io/networks": "[{\"name\": \"` + name + `\", \"default-route\": []}, {\"name\": \"lan\"}, {\"name\": \"cluster\"}]"}`)
		args.ContainerID = name
		args.StdinData = bytes.Replace(args.StdinData, []byte(`"default": true`), []byte(`"isDefaultGateway": true, "ipam": {"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}]}`), 1)
		if _, err := Pod(&plugin.Exec{}).Funcs.Add(t.Context(), args); err != nil {
			t.Fatal(err)
		}
		calls := h.calls()
		for i := range calls {
			calls[i] = strings.ReplaceAll(calls[i], `": `, `":`)
		}
		wantCalls(t, calls, `ADD eth0 "isDefaultGateway":false "routes":[]`, want, `ADD net2 "isDefaultGateway":false "routes":[]`, `ADD net3 "defaultRoute":false`)
	}
}

// TestPodRollback checks that a failed ADD detaches in reverse order what it began, and leaves no record.
func TestPodRollback(t *testing.T) {
	h := newPodHost(t)
	p := Pod(&plugin.Exec{})
	h.define("good", `{"cniVersion": "1.0.0", "type": "one"}`, "")
	h.define("bad", `{"cniVersion": "1.0.0", "plugins": [{"type": "one"}, {"type": "one", "x": "refuseADD"}]}`, "")
	args := h.args(`{"k8s.v1.cni.cncf.io/networks": "good,bad,good"}`)
	_, err := p.Funcs.Add(t.Context(), args)
	if err == nil || cni.AsError(err).Code != 11 || !strings.Contains(err.Error(), "pod shop/web: network shop/bad: interface net2: plugins[1] one: it is busy") {
		t.Errorf("ADD: %v", err)
	}
	wantCalls(t, h.calls(), "ADD eth0", "ADD net1", "ADD net2", "ADD net2", "DEL net2", "DEL net2", "DEL net1", "DEL eth0")
	if _, err := h.state.Pod("c", "eth0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the record: %v", err)
	}
}

// TestPodUnusableDefinition selects a definition that the agent rejected. The error says why.
func TestPodUnusableDefinition(t *testing.T) {
	h := newPodHost(t)
	if err := h.state.WriteDefinition(podstate.Definition{Namespace: "shop", Name: "huge", Problem: "it is too large"}); err != nil {
		t.Fatal(err)
	}
	_, err := Pod(&plugin.Exec{}).Funcs.Add(t.Context(), h.args(`{"k8s.v1.cni.cncf.io/networks": "huge"}`))
	if err == nil || cni.AsError(err).Code != cni.CodeInvalidNetworkConfig || !strings.Contains(err.Error(), "NetworkAttachmentDefinition shop/huge: it is too large") {
		t.Errorf("ADD: %v", err)
	}
}

// TestPodAsksAgent checks what the plugin asks the agent, and how it passes on devices.
func TestPodAsksAgent(t *testing.T) {
	h := newPodHost(t)
	p := Pod(&plugin.Exec{})
	h.define("nic", `{"cniVersion": "1.0.0", "plugins": [{"type": "one", "capabilities": {"deviceID": true}}, {"type": "one"}]}`, "example.com/nic")
	devices := []string{"0000:01:00.1", "0000:01:00.2"}
	asked := 0
	h.serve(map[string]address.Handler{
		podstate.OpDevices: func(_ context.Context, raw json.RawMessage) (any, error) {
			asked++
			if want := `{"namespace":"shop","name":"web","resource":"example.com/nic"}`; string(raw) != want {
				t.Errorf("asked for %s, want %s", raw, want)
			}
			return podstate.DevicesResult{IDs: devices}, nil
		},
		podstate.OpDefinition: func(_ context.Context, raw json.RawMessage) (any, error) {
			var args podstate.DefinitionArgs
			if err := json.Unmarshal(raw, &args); err != nil || args.Name != "new" && args.Name != "damaged" {
				return nil, cni.Errorf(cni.CodeInvalidNetworkConfig, "it does not exist")
			}
			return podstate.Definition{Namespace: "shop", Name: args.Name, Config: `{"cniVersion": "1.0.0", "type": "one"}`}, nil
		},
	})
	h.define("damaged", `{}`, "")
	h.define("newer", `{"cniVersion": "2.0.0", "type": "one"}`, "")
	h.file(filepath.Join(h.dir.Root(), "definitions", "shop", "damaged.json"), `{"version": 1, "names`)
	args := h.args(`{"k8s.v1.cni.cncf.io/networks": "nic,new,nic,damaged"}`)
	if _, err := p.Funcs.Add(t.Context(), args); err != nil {
		t.Fatal(err)
	}
	calls := h.calls()
	wantCalls(t, calls, "ADD eth0", `ADD net1 "deviceID":"0000:01:00.1" "pciBusID":"0000:01:00.1" "runtimeConfig":{"deviceID":"0000:01:00.1"}`, "ADD net1", `ADD net2 "name":"new"`, `ADD net3 "deviceID":"0000:01:00.2"`, "ADD net3", `ADD net4 "name":"damaged"`)
	if !strings.Contains(calls[2], "deviceID\":\"0000:01:00.1\",\"pciBusID") || asked != 1 {
		t.Errorf("the second plugin got %s; the agent was asked %d times", calls[2], asked)
	}
	if err := p.Funcs.Del(t.Context(), args); err != nil {
		t.Error(err)
	}
	for annotations, want := range map[string]string{
		`{"k8s.v1.cni.cncf.io/networks": "nic,nic,nic"}`: "pod shop/web: network shop/nic: the pod has no device of resource example.com/nic left",
		`{"k8s.v1.cni.cncf.io/networks": "newer"}`:       `cniVersion = "2.0.0": ADD rejects this version`,
		`{"k8s.v1.cni.cncf.io/networks": "missing"}`:     "pod shop/web: network shop/missing: NetworkAttachmentDefinition shop/missing: it does not exist",
	} {
		h.calls()
		if _, err := p.Funcs.Add(t.Context(), h.args(annotations)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", annotations, err)
		}
		if got := h.calls(); got[0] != "" {
			t.Errorf("%s: calls %v", annotations, got)
		}
	}
}

// TestPodResourceWithoutDevices checks that a network starts whose resource only says on which nodes it exists: the kubelet
// knows no devices of it.
func TestPodResourceWithoutDevices(t *testing.T) {
	h := newPodHost(t)
	h.define("br1", `{"cniVersion": "1.0.0", "type": "one"}`, "bridge.network.kubevirt.io/br1")
	h.serve(map[string]address.Handler{podstate.OpDevices: func(context.Context, json.RawMessage) (any, error) {
		return podstate.DevicesResult{IDs: []string{}}, nil
	}})
	if _, err := Pod(&plugin.Exec{}).Funcs.Add(t.Context(), h.args(`{"k8s.v1.cni.cncf.io/networks": "br1,br1"}`)); err != nil {
		t.Fatal(err)
	}
	calls := h.calls()
	wantCalls(t, calls, "ADD eth0", "ADD net1", "ADD net2")
	if strings.Contains(strings.Join(calls, ""), "deviceID") {
		t.Errorf("a device: %v", calls)
	}
}

// TestPodAddressesAsRequested checks that a pod does not start with other addresses than it requests, whether or not the
// plugin declares the capabilities. It gets the request in both cases, as with Multus.
func TestPodAddressesAsRequested(t *testing.T) {
	for _, capabilities := range []string{`, "capabilities": {"ips": true, "mac": true}`, `, "capabilities": {"mac": false}`, ""} {
		podAddressesAsRequested(t, capabilities)
	}
}

func podAddressesAsRequested(t *testing.T, capabilities string) {
	t.Helper()
	h := newPodHost(t)
	h.file(filepath.Join(h.bin, "one"), strings.Replace(fmt.Sprintf(logging, h.log), `"sandbox":"/x"}]`, `"sandbox":"/x","mac":"02:00:00:00:00:05"}],"ips":[{"address":"10.0.0.5/24"},{"address":"fd00::5/64"}]`, 1))
	h.define("lan", `{"cniVersion": "1.0.0", "type": "one"`+capabilities+`}`, "")
	for asked, want := range map[string]string{
		`"ips": ["10.0.0.5"]`: "",
		`"ips": ["10.0.0.5/16", "FD00:0::5/64"], "mac": "02:00:00:00:00:05"`: "",
		`"ips": ["10.0.0.5", "10.0.0.6"]`:                                    "network lan did not give the pod the address 10.0.0.6",
		`"ips": ["fd00::6/64"]`:                                              "network lan did not give the pod the address fd00::6",
		`"mac": "02:00:00:00:00:06"`:                                         "gave the pod the hardware address 02:00:00:00:00:05 and not 02:00:00:00:00:06",
	} {
		text, _ := json.Marshal(`[{"name": "lan", ` + asked + `}]`) // a text cannot fail
		args := h.args(`{"k8s.v1.cni.cncf.io/networks": ` + string(text) + `}`)
		_, err := Pod(&plugin.Exec{}).Funcs.Add(t.Context(), args)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", asked, err, want)
		}
		calls := strings.Join(h.calls(), "\n")
		if key, _, _ := strings.Cut(asked, ":"); !strings.Contains(calls, `"runtimeConfig":{`+key) {
			t.Errorf("%s%s: the plugin got\n%s", asked, capabilities, calls)
		}
		if undone := strings.Contains(calls, "DEL net1") && strings.Contains(calls, "DEL eth0"); undone != (want != "") {
			t.Errorf("%s: undone: %v\n%s", asked, undone, calls)
		}
		_ = Pod(&plugin.Exec{}).Funcs.Del(t.Context(), args) // of those that succeeded
		h.calls()
	}
}

// TestPodDeviceWithoutCapability checks that a network gets its device although no plugin declares the capability.
func TestPodDeviceWithoutCapability(t *testing.T) {
	h := newPodHost(t)
	h.define("plain", `{"cniVersion": "1.0.0", "type": "one"}`, "example.com/nic")
	h.serve(map[string]address.Handler{podstate.OpDevices: func(context.Context, json.RawMessage) (any, error) {
		return podstate.DevicesResult{IDs: []string{"0000:01:00.1"}}, nil
	}})
	args := h.args(`{"k8s.v1.cni.cncf.io/networks": "[{\"name\": \"plain\"}, {\"name\": \"plain\", \"deviceID\": \"0000:02:00.1\"}]"}`)
	if _, err := Pod(&plugin.Exec{}).Funcs.Add(t.Context(), args); err != nil {
		t.Fatal(err)
	}
	calls := h.calls()
	wantCalls(t, calls, "ADD eth0", `ADD net1 "deviceID":"0000:01:00.1"`, `ADD net2 "deviceID":"0000:02:00.1"`)
	if strings.Contains(calls[1], `"runtimeConfig":{"deviceID`) {
		t.Errorf("a plugin got a capability that it does not declare: %s", calls[1])
	}
}

// TestPodKeepsRuntimesArguments checks that annotations of a pod add to the host ports of its specification and to the rates
// that the runtime passed.
func TestPodKeepsRuntimesArguments(t *testing.T) {
	h := newPodHost(t)
	args := h.args(`{"fairlead.io/ports": "9090:90, 8080:80", "fairlead.io/ingress-bandwidth": "1M"}`)
	conf := strings.Replace(string(args.StdinData), `"runtimeConfig": {`, `"runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}, {"hostPort": 53, "containerPort": 53, "protocol": "udp", "hostIP": "192.0.2.1"}],
		"bandwidth": {"ingressRate": 5, "ingressBurst": 5, "egressRate": 7000000, "egressBurst": 8000000}, `, 1)
	args.StdinData = []byte(strings.Replace(conf, `"default": true`, `"default": true, "capabilities": {"portMappings": true, "bandwidth": true}`, 1))
	if _, err := Pod(&plugin.Exec{}).Funcs.Add(t.Context(), args); err != nil {
		t.Fatal(err)
	}
	calls := h.calls()
	for _, want := range []string{
		`"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"},{"hostPort":53,"containerPort":53,"protocol":"udp","hostIP":"192.0.2.1"},{"hostPort":9090,"containerPort":90,"protocol":"tcp"}]`,
		`"bandwidth":{"ingressRate":1000000,"ingressBurst":2097152,"egressRate":7000000,"egressBurst":8000000}`,
	} {
		if len(calls) != 1 || !strings.Contains(calls[0], want) {
			t.Errorf("%s lacks %s", calls, want)
		}
	}
}

// TestPodWithoutAgent checks the code for a definition that cannot be found without an agent.
func TestPodWithoutAgent(t *testing.T) {
	h := newPodHost(t)
	_, err := Pod(&plugin.Exec{}).Funcs.Add(t.Context(), h.args(`{"k8s.v1.cni.cncf.io/networks": "new"}`))
	if cni.AsError(err).Code != cni.CodeTryAgainLater {
		t.Errorf("%v", err)
	}
	h.define("damaged", `{}`, "")
	file := filepath.Join(h.dir.Root(), "definitions", "shop", "damaged.json")
	h.file(file, "")
	_, err = Pod(&plugin.Exec{}).Funcs.Add(t.Context(), h.args(`{"k8s.v1.cni.cncf.io/networks": "damaged"}`))
	if err == nil || cni.AsError(err).Code != cni.CodeTryAgainLater || !strings.Contains(err.Error(), file) {
		t.Errorf("a damaged file: %v", err)
	}
}

// TestPodWithoutRequests checks that annotations that ask for nothing leave no record.
func TestPodWithoutRequests(t *testing.T) {
	h := newPodHost(t)
	p := Pod(&plugin.Exec{})
	for _, annotations := range []string{`null`, `{}`, `{"a": "b"}`, `{"k8s.v1.cni.cncf.io/networks": " "}`, `{"kubernetes.io/ingress-bandwidth": "1M"}`, `{"fairlead.io/labels": "app=web"}`} {
		args := h.args(annotations)
		if _, err := p.Funcs.Add(t.Context(), args); err != nil {
			t.Errorf("%s: %v", annotations, err)
		}
		if err := p.Funcs.Del(t.Context(), args); err != nil {
			t.Errorf("%s: %v", annotations, err)
		}
		got := h.calls()
		wantCalls(t, got, "ADD eth0", "DEL eth0")
		if strings.Contains(got[0], "confDirs") {
			t.Errorf("a plugin got the key confDirs: %s", got[0])
		}
	}
	if keys, err := h.state.Pods(); err != nil || len(keys) != 0 {
		t.Errorf("%v, %v", keys, err)
	}
}

// TestPodDamagedRecord checks that DEL detaches the default network and reports the file.
func TestPodDamagedRecord(t *testing.T) {
	h := newPodHost(t)
	p := Pod(&plugin.Exec{})
	args := h.args(`{"fairlead.io/networks": "more"}`)
	h.file(filepath.Join(h.confs, "1.json"), `{"cniVersion": "1.0.0", "name": "more", "type": "one"}`)
	h.file(filepath.Join(h.confs, "0.conf"), `{`)
	if _, err := p.Funcs.Add(t.Context(), args); err != nil {
		t.Fatal(err)
	}
	wantCalls(t, h.calls(), "ADD eth0", `ADD net1 "name":"more"`)
	file := filepath.Join(h.dir.Root(), "pods", "c:eth0.json")
	h.file(file, `{"version": 1, "containerID`)
	err := p.Funcs.Del(t.Context(), args)
	if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("%v", err)
	}
	wantCalls(t, h.calls(), "DEL eth0")
}

// TestPodOfMultus checks that DEL detaches what Multus attached, also if the first DEL fails.
func TestPodOfMultus(t *testing.T) {
	h := newPodHost(t)
	p := Pod(&plugin.Exec{})
	multus := filepath.Join(filepath.Dir(h.dir.Root()), "multus")
	if err := os.MkdirAll(filepath.Join(multus, "results"), 0o700); err != nil {
		t.Fatal(err)
	}
	encode := func(config string) string { return base64.StdEncoding.EncodeToString([]byte(config)) }
	bytes := `{"cniVersion": "1.0.0", "name": "cluster", "plugins": [{"type": "one", "a": 1}, {"type": "one", "a": 2}]}`
	list := `{"Name": "", "Plugins": null}`
	write := func(more string) {
		h.file(filepath.Join(multus, "c"), `[{"Conf": {}, "ConfList": {"name": "cluster"}, "Name": "", "Bytes": "`+encode(bytes)+`", "CNINetworkConfigList": `+list+`},
		{"Conf": {"name": "lan"}, "ConfList": {}, "Name": "shop/lan", "IsFilterV4Gateway": false, "Bytes": "`+encode(`{"cniVersion": "1.0.0", "name": "lan", "type": "one"`+more+`}`)+`"},
		{"Conf": {"name": "back"}, "ConfList": {}, "Name": "shop/back", "ifnameRequest": "back0", "Bytes": "`+encode(`{"cniVersion": "0.3.1", "name": "back", "type": "one"}`)+`"}]`)
	}
	write(`, "x": "refuseDEL"`)
	h.file(filepath.Join(multus, "results", "lan-c-net1"), `{"kind": "cniCacheV1", "result": {"cniVersion": "1.0.0", "interfaces": [{"name": "net1"}]}}`)
	h.file(filepath.Join(multus, "other"), `[]`)
	args := h.args(`{}`)
	if err := p.Funcs.Del(t.Context(), args); err == nil || !strings.Contains(err.Error(), "it is busy") {
		t.Errorf("DEL: %v", err)
	}
	wantCalls(t, h.calls(), `DEL back0 "name":"back"`, `DEL net1 "name":"lan" "prevResult":`, `DEL eth0 "a":2`, `DEL eth0 "a":1`)
	record, err := h.state.Pod("c", "eth0")
	if err != nil || len(record.Attachments) != 1 {
		t.Fatalf("%+v, %v", record, err)
	}
	if err := h.state.RemovePod("c", "eth0"); err != nil { // so that the next DEL starts again
		t.Fatal(err)
	}
	// As Multus v4.2 records a default network from a file.
	bytes = `{"cniVersion": "1.0.0", "name": "cluster", "plugins": [{"type": "fairlead-chain", "ipam": {}, "dns": {}}]}`
	list = `{"Name": "cluster", "CNIVersion": "1.0.0", "Plugins": [{"Network": {"type": "fairlead-chain"}, "Bytes": "` +
		encode(`{"type": "fairlead-chain", "plugins": [{"type": "one", "a": 3}, {"type": "one", "a": 4}]}`) + `"}]}`
	write("")
	if err := p.Funcs.Del(t.Context(), args); err != nil {
		t.Error(err)
	}
	wantCalls(t, h.calls(), `DEL back0`, `DEL net1 "prevResult":`, `DEL eth0 "a":4`, `DEL eth0 "a":3`)
	var left []string
	for _, pattern := range []string{"*", "results/*"} {
		files, err := filepath.Glob(filepath.Join(multus, pattern))
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, files...)
	}
	if len(left) != 2 || filepath.Base(left[0]) != "other" || filepath.Base(left[1]) != "results" {
		t.Errorf("left: %v", left)
	}
}

// TestPodOfMultusWithDamagedFile checks that DEL detaches what Multus' cache of results has, and at least the default
// network. A pod whose DEL fails for ever would stay for ever.
func TestPodOfMultusWithDamagedFile(t *testing.T) {
	h := newPodHost(t)
	p := Pod(&plugin.Exec{})
	results := filepath.Join(filepath.Dir(h.dir.Root()), "multus", "results")
	if err := os.MkdirAll(results, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(filepath.Dir(results), "c")
	cached := func(id, network, ifName, config string) {
		h.file(filepath.Join(results, network+"-"+id+"-"+ifName), `{"kind": "cniCacheV1", "containerId": "`+id+`", "networkName": "`+network+`", "ifName": "`+ifName+
			`", "config": "`+base64.StdEncoding.EncodeToString([]byte(config))+`", "result": {"cniVersion": "1.0.0", "ips": []}}`)
	}
	for _, damaged := range []string{"", "[{", "null"} {
		cached("c", "lan", "net1", `{"cniVersion": "1.0.0", "name": "lan", "type": "one"}`)
		cached("c", "bad", "net2", `{`)
		cached("a-c", "lan", "net1", `{"cniVersion": "1.0.0", "name": "lan", "type": "one"}`)
		h.file(file, damaged)
		for range 2 { // nothing is left for the second DEL, except the default network
			if err := p.Funcs.Del(t.Context(), h.args(`{}`)); err != nil {
				t.Errorf("%q: %v", damaged, err)
			}
		}
		wantCalls(t, h.calls(), `DEL net1 "name":"lan" "prevResult":`, `DEL eth0 "name":"pods"`, "DEL eth0")
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q stays: %v", damaged, err)
		}
	}
}

// TestDelWithoutPlugins checks what DEL does with a list of which Multus has left out what is inside the plugins.
func TestDelWithoutPlugins(t *testing.T) {
	h := newPodHost(t)
	args := h.args(`{}`)
	args.StdinData = []byte(`{"cniVersion": "1.0.0", "name": "pods", "type": "fairlead-chain", "ipam": {}, "dns": {}}`)
	funcs := []skel.CNIFuncs{Pod(&plugin.Exec{}).Funcs, Chain(&plugin.Exec{}).Funcs}
	for _, f := range funcs {
		if err := f.Del(t.Context(), args); err != nil {
			t.Errorf("without a record: %v", err)
		}
	}
	records := attach.Open("")
	r := records.New("pods", "c", "eth0", args.Netns)
	r.Parts = []attach.Part{{Plugin: "one", IPAM: "pool", Done: true}, {Plugin: "one", Done: true}}
	if err := records.Write(r); err != nil {
		t.Fatal(err)
	}
	for _, f := range funcs {
		if err := f.Del(t.Context(), args); err != nil {
			t.Error(err)
		}
		calls := h.calls()
		wantCalls(t, calls, `DEL eth0 "name":`, `DEL eth0 "ipam":{"type":"pool"}`)
		if strings.Contains(calls[0], "ipam") {
			t.Errorf("a plugin without IPAM got %s", calls[0])
		}
	}

	// The record has no part of fairlead-policy, and may be gone before its endpoint.
	h.file(filepath.Join(h.bin, "fairlead-policy"), fmt.Sprintf(logging, h.log))
	if err := h.state.WriteEndpoint(&podstate.Endpoint{Network: "pods", ContainerID: "c", IfName: "eth0"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]string{{`"type":"fairlead-policy"`, `"type":"one"`, `"type":"one"`}, {`"type":"fairlead-policy"`}} {
		for _, f := range funcs {
			if err := f.Del(t.Context(), args); err != nil {
				t.Error(err)
			}
			wantCalls(t, h.calls(), want...)
		}
		if err := records.Remove(kernel.Owner{Network: "pods", ContainerID: "c", IfName: "eth0"}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFusePod checks the list that an agent writes.
func TestFusePod(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		`{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "ptp"}]}`:                                                                 `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type":"fairlead-pod","capabilities":{"io.kubernetes.cri.pod-annotations":true},"plugins":[{"type": "ptp"}]}]}`,
		`{"name": "n", "plugins": [{"type": "fairlead-chain", "capabilities": {"ips": true}, "plugins": [{"type": "ptp"}, {"type": "a"}]}]}`: `{"name": "n", "plugins": [{"type":"fairlead-pod","capabilities":{"io.kubernetes.cri.pod-annotations":true},"plugins":[{"type": "ptp"},{"type": "a"}]}]}`,
		`{"name": "n", "plugins": [{"type": "fairlead-pod", "plugins": [{"type": "ptp"}]}]}`:                                                 `{"name": "n", "plugins": [{"type": "fairlead-pod", "plugins": [{"type": "ptp"}]}]}`,
	} {
		got, err := FusePod([]byte(list))
		if err != nil || string(compact(t, got)) != string(compact(t, []byte(want))) {
			t.Errorf("%s: %s, %v, want %s", list, got, err, want)
		}
	}
	for _, list := range []string{``, `[]`, `{}`, `{"plugins": []}`, `{"plugins": 7}`, `{"plugins": [{"type": "a", "capabilities": 7}]}`} {
		if got, err := FusePod([]byte(list)); err == nil {
			t.Errorf("%s: %s", list, got)
		}
	}
}

// TestFuseChain checks the list that an agent writes with cni.fuse.
func TestFuseChain(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		`{"name": "n", "plugins": [{"type": "ptp", "capabilities": {"ips": true}}, {"type": "a"}]}`: `{"name": "n", "plugins": [{"type":"fairlead-chain","capabilities":{"ips":true},"plugins":[{"type": "ptp", "capabilities": {"ips": true}},{"type": "a"}]}]}`,
		`{"name": "n", "plugins": [{"type": "ptp"}]}`:                                               `{"name": "n", "plugins": [{"type": "ptp"}]}`,
		`{"name": "n", "plugins": [{"type": "fairlead-pod", "plugins": []}, {"type": "a"}]}`:        `{"name": "n", "plugins": [{"type": "fairlead-pod", "plugins": []}, {"type": "a"}]}`,
		`{"name": "n", "plugins": [{"type": "fairlead-chain", "plugins": []}, {"type": "a"}]}`:      `{"name": "n", "plugins": [{"type": "fairlead-chain", "plugins": []}, {"type": "a"}]}`,
	} {
		got, err := FuseChain([]byte(list))
		if err != nil || string(compact(t, got)) != string(compact(t, []byte(want))) {
			t.Errorf("%s: %s, %v, want %s", list, got, err, want)
		}
	}
	if got, err := FuseChain([]byte(`{"plugins": []}`)); err == nil {
		t.Errorf("a list without plugins: %s", got)
	}
}

func compact(t *testing.T, raw []byte) []byte {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPodDropIns verifies that a network from a file has the plugins of its drop-in files, as with other runtimes, and
// that a FIFO in the directory does not block ADD.
func TestPodDropIns(t *testing.T) {
	h := newPodHost(t)
	p := Pod(&plugin.Exec{})
	dir := func(name string) string { return filepath.Join(h.confs, name) }
	for name, list := range map[string]string{"lan": `"plugins": [{"type": "one", "n": 1}]`, "drop": `"x": 1`, "inlined": `"loadOnlyInlinedPlugins": true, "plugins": [{"type": "one"}]`} {
		h.file(dir(name+".conflist"), `{"cniVersion": "1.0.0", "name": "`+name+`", `+list+`}`)
		if err := os.Mkdir(dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		h.file(filepath.Join(dir(name), "10-more.conf"), `{"type": "one", "dropIn": true}`)
		h.file(filepath.Join(dir(name), "20-ignored.json"), `{"type": "none"}`)
	}
	if err := syscall.Mkfifo(dir("00-pipe.conf"), 0o600); err != nil {
		t.Fatal(err)
	}
	for network, want := range map[string][]string{
		"lan": {"ADD eth0", `ADD net1 "n":1`, `ADD net1 "dropIn":true`}, "drop": {"ADD eth0", `ADD net1 "dropIn":true`}, "inlined": {"ADD eth0", "ADD net1"},
	} {
		args := h.args(`{"fairlead.io/networks": "` + network + `"}`)
		if _, err := p.Funcs.Add(t.Context(), args); err != nil {
			t.Fatalf("%s: %v", network, err)
		}
		wantCalls(t, h.calls(), want...)
		if err := p.Funcs.Del(t.Context(), args); err != nil {
			t.Errorf("%s: %v", network, err)
		}
		h.calls()
	}
}
