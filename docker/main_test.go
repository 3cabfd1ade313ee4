package docker_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/docker"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/plugins/ovs"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// host is a driver on a host of its own. The test takes the part of dockerd.
type host struct {
	*docker.Driver
	t       *testing.T
	options docker.Options
	records *attach.Dir
}

func newHost(t *testing.T) *host {
	t.Helper()
	kerneltest.Host(t)
	dir := t.TempDir()
	self, err := os.Executable()
	must(t, err)
	run, lib := filepath.Join(dir, "run"), filepath.Join(dir, "lib")
	all := plugins.In(plugin.Env{Root: run}, ovs.Plugin())
	for _, p := range all.Plugins {
		must(t, os.MkdirAll(filepath.Join(dir, "bin"), 0o755))
		must(t, os.Symlink(self, filepath.Join(dir, "bin", p.Name)))
	}
	h := &host{t: t, records: attach.Open(run), options: docker.Options{
		Socket: filepath.Join(dir, "fairlead.sock"), RunDir: run, LibDir: lib, Interval: time.Hour, Grace: time.Hour,
		Path: []string{filepath.Join(dir, "bin")}, Exec: all,
	}}
	h.start()
	return h
}

// start starts the driver, again after another one.
func (h *host) start() {
	h.t.Helper()
	d, err := docker.New(h.options)
	must(h.t, err)
	h.t.Cleanup(d.Close)
	h.Driver = d
}

// raw calls a method and returns the response.
func (h *host) raw(method, request string) (status int, response string) {
	w := httptest.NewRecorder()
	h.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/"+method, strings.NewReader(request)))
	return w.Code, w.Body.String()
}

// call calls a method that succeeds.
func (h *host) call(method, request string) map[string]any {
	h.t.Helper()
	status, text := h.raw(method, request)
	var out map[string]any
	must(h.t, json.Unmarshal([]byte(text), &out))
	if status != http.StatusOK || out["Err"] != nil {
		h.t.Fatalf("%s %s: %d %s", method, request, status, text)
	}
	return out
}

// fails calls a method whose error has a text.
func (h *host) fails(method, request, want string) {
	h.t.Helper()
	_, text := h.raw(method, request)
	var out struct{ Err, Error string }
	must(h.t, json.Unmarshal([]byte(text), &out))
	if out.Err == "" || out.Err != out.Error || !strings.Contains(out.Err, want) {
		h.t.Errorf("%s %s: %s, want an error with %q", method, request, text, want)
	}
}

// network creates a network with options, and IPv4Data or IPv6Data.
func (h *host) network(id, options, data string) {
	h.t.Helper()
	h.call("NetworkDriver.CreateNetwork", `{"NetworkID":"`+id+`","Options":{"com.docker.network.generic":{`+options+`}},`+data+`}`)
}

const pool4 = `"IPv4Data":[{"Pool":"10.20.0.0/24","Gateway":"10.20.0.1/24"}]`
const pools = pool4 + `,"IPv6Data":[{"Pool":"fd20::/64","Gateway":"fd20::1/64"}]`

func ids(network, endpoint string) string {
	return `"NetworkID":"` + network + `","EndpointID":"` + endpoint + `"`
}

// container returns a container that has the endpoint e1 of the network n1.
func (h *host) container() (netns string) {
	h.t.Helper()
	netns = kerneltest.Netns(h.t)
	h.call("NetworkDriver.CreateEndpoint", `{`+ids("n1", "e1")+`,"Interface":{"Address":"10.20.0.5/24"}}`)
	h.join("n1", "e1", netns, "10.20.0.5/24")
	return netns
}

// join joins an endpoint to a container and moves its link there, as dockerd does.
func (h *host) join(network, endpoint, container, addresses string) (response map[string]any) {
	h.t.Helper()
	response = h.call("NetworkDriver.Join", `{`+ids(network, endpoint)+`,"SandboxKey":"`+container+`"}`)
	name := response["InterfaceName"].(map[string]any)
	src, dst := name["SrcName"].(string), name["DstPrefix"].(string)+"0"
	kerneltest.Run(h.t, "ip", "link", "set", src, "netns", container)
	kerneltest.In(h.t, container, "ip", "link", "set", src, "name", dst)
	for a := range strings.FieldsSeq(addresses) {
		kerneltest.In(h.t, container, "ip", "addr", "add", a, "dev", dst, "nodad")
	}
	kerneltest.In(h.t, container, "ip", "link", "set", dst, "up")
	if gw, ok := response["Gateway"].(string); ok {
		kerneltest.In(h.t, container, "ip", "route", "add", "default", "via", gw)
	}
	kerneltest.Until(h.t, func() bool { return h.record().State() == attach.StateOK })
	return response
}

// record returns the only record.
func (h *host) record() *attach.Record {
	h.t.Helper()
	list, err := h.records.List("")
	must(h.t, err)
	if len(list) != 1 {
		h.t.Fatalf("%d records, want one", len(list))
	}
	return list[0]
}

// nothingLeft checks that no endpoint left anything. What belongs to its network stays: a bridge, sets and chains.
func (h *host) nothingLeft() {
	h.t.Helper()
	for line := range strings.Lines(kerneltest.Dump(h.t, "")) {
		if strings.Contains(line, "fairlead docker-") && strings.Contains(line, " e1 ") || strings.Contains(line, ": fl") && strings.Contains(line, "@") {
			h.t.Errorf("left on the host: %s", line)
		}
	}
	if list, err := h.records.List(""); err != nil || len(list) > 0 {
		h.t.Errorf("left records: %v, %v", list, err)
	}
	for _, pattern := range []string{filepath.Join(h.options.RunDir, "docker", "endpoints", "*"), filepath.Join(h.options.RunDir, "docker", "results", "*"), filepath.Join(h.options.RunDir, "attach", "*", "*")} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			h.t.Errorf("left files: %v, %v", left, err)
		}
	}
}
