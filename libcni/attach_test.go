package libcni_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/libcni"
)

const twoPlugins = `{"cniVersion":"1.1.0","name":"net","x":1,"plugins":[
	{"type":"first","zeta":1.50,"capabilities":{"ips":true,"mac":false},"alpha":[1,  2]},
	{"type":"second","runtimeConfig":{"kept":1}}]}`

const prev = `{"cniVersion":"1.1.0","interfaces":[{"name":"%"}],"ips":[{"address":"10.1.0.2/24"}]}`

func TestListLifecycle(t *testing.T) {
	t.Parallel()
	h, ctx := newRuntimeHost(t, "first", "second"), context.Background()
	list, rt := mustList(t, twoPlugins), runtimeConf("c1")

	result, err := h.cni.AddNetworkList(ctx, list, rt)
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Interfaces) != 1 || result.Interfaces[0].Name != "second" {
		t.Errorf("result %+v", result)
	}
	first := `{"type":"first","zeta":1.50,"alpha":[1,  2],"cniVersion":"1.1.0","name":"net","runtimeConfig":{"ips":["10.1.0.9/24"]}`
	second := `{"type":"second","runtimeConfig":{"kept":1},"cniVersion":"1.1.0","name":"net"`
	firstPrev, secondPrev := strings.ReplaceAll(prev, "%", "first"), strings.ReplaceAll(prev, "%", "second")
	h.expect("first ADD, second ADD", map[string]string{"first ADD": first + "}", "second ADD": second + `,"prevResult":` + firstPrev + "}"})

	if cached, err := h.cni.GetNetworkListCachedResult(list, rt); err != nil || cached == nil || cached.Interfaces[0].Name != "second" {
		t.Errorf("cached result %+v, %v", cached, err)
	}
	if err := h.cni.CheckNetworkList(ctx, list, rt); err != nil {
		t.Error(err)
	}
	h.expect("first CHECK, second CHECK", map[string]string{"first CHECK": first + `,"prevResult":` + secondPrev + "}", "second CHECK": second + `,"prevResult":` + secondPrev + "}"})

	if err := h.cni.DelNetworkList(ctx, list, rt); err != nil {
		t.Error(err)
	}
	h.expect("second DEL, first DEL", map[string]string{"first DEL": first + `,"prevResult":` + secondPrev + "}"})
	if cached, err := h.cni.GetNetworkListCachedResult(list, rt); cached != nil || err != nil {
		t.Errorf("still cached: %+v, %v", cached, err)
	}

	if err := h.cni.DelNetworkList(ctx, list, rt); err != nil {
		t.Error(err)
	}
	h.expect("second DEL, first DEL", map[string]string{"first DEL": first + "}"})
	if h.warnings != nil {
		t.Errorf("warnings %q", h.warnings)
	}
}

func (h *host) expect(calls string, requests map[string]string) {
	h.t.Helper()
	got, asked := h.calls()
	if got != calls {
		h.t.Errorf("ran %s, want %s", got, calls)
	}
	for call, want := range requests {
		if asked[call] != want {
			h.t.Errorf("%s got\n%s\nwant\n%s", call, asked[call], want)
		}
	}
}

func TestSinglePlugin(t *testing.T) {
	t.Parallel()
	h, ctx := newRuntimeHost(t, "first"), context.Background()
	conf, err := libcni.ConfFromBytes([]byte(`{"type":"first","name":"one","cniVersion":"0.3.1"}`))
	if err != nil {
		t.Fatal(err)
	}
	rt := runtimeConf("c1")
	if _, err := h.cni.AddNetwork(ctx, conf, rt); err != nil {
		t.Fatal(err)
	}
	if r, err := h.cni.GetNetworkCachedResult(conf, rt); err != nil || r == nil || r.CNIVersion != "0.3.1" {
		t.Errorf("cached %+v, %v", r, err)
	}
	data, with, err := h.cni.GetNetworkCachedConfig(conf, &libcni.RuntimeConf{ContainerID: "c1", IfName: "eth0"})
	if err != nil || string(data) != string(conf.Bytes) || len(with.Args) != 1 || with.CapabilityArgs["mac"] != "02:00:00:00:00:01" {
		t.Errorf("cached configuration %s, %+v, %v", data, with, err)
	}
	if err := h.cni.CheckNetwork(ctx, conf, rt); !errors.Is(err, libcni.ErrorCheckNotSupp) {
		t.Errorf("CHECK in 0.3.1: %v", err)
	}
	if err := h.cni.DelNetwork(ctx, conf, rt); err != nil {
		t.Error(err)
	}
	h.expect("first ADD, first DEL", map[string]string{"first DEL": `{"type":"first","name":"one","cniVersion":"0.3.1"}`})
}

func TestDelStopsAndKeepsTheCache(t *testing.T) {
	t.Parallel()
	h, ctx := newRuntimeHost(t, "first", "second", "third"), context.Background()
	list := mustList(t, `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"first"},{"type":"second","fail":"DEL"},{"type":"third"}]}`)
	rt := runtimeConf("c1")
	if _, err := h.cni.AddNetworkList(ctx, list, rt); err != nil {
		t.Fatal(err)
	}
	h.calls()
	err := h.cni.DelNetworkList(ctx, list, rt)
	if e := cni.AsError(err); e.Code != 50 || !strings.Contains(e.Msg, `plugin type="second" name="net" failed (delete): as told`) {
		t.Errorf("got %v", err)
	}
	h.expect("third DEL, second DEL", nil)
	if r, _ := h.cni.GetNetworkListCachedResult(list, rt); r == nil {
		t.Error("the cache was not kept")
	}
}

func TestAddStopsWithoutCleaning(t *testing.T) {
	t.Parallel()
	h := newRuntimeHost(t, "first", "second", "third")
	list := mustList(t, `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"first"},{"type":"second","fail":"ADD"},{"type":"third"}]}`)
	_, err := h.cni.AddNetworkList(context.Background(), list, runtimeConf("c1"))
	if err == nil || !strings.Contains(err.Error(), `plugin type="second" name="net" failed (add): as told`) {
		t.Errorf("got %v", err)
	}
	h.expect("first ADD, second ADD", nil)
	if _, err := os.Stat(h.cache); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a failed ADD left a cache: %v", err)
	}
}

func TestMissingPlugin(t *testing.T) {
	t.Parallel()
	h, ctx := newRuntimeHost(t, "first"), context.Background()
	list := mustList(t, `{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"first"},{"type":"missing"}]}`)
	_, addErr := h.cni.AddNetworkList(ctx, list, runtimeConf("c1"))
	for verb, err := range map[string]error{
		"ADD": addErr, "CHECK": h.cni.CheckNetworkList(ctx, list, runtimeConf("c1")),
		"DEL": h.cni.DelNetworkList(ctx, list, runtimeConf("c1")), "STATUS": h.cni.GetStatusNetworkList(ctx, list),
	} {
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), h.bin) {
			t.Errorf("%s: %v", verb, err)
		}
	}
	h.expect("", nil)
}

func TestBadNames(t *testing.T) {
	t.Parallel()
	h, list := newRuntimeHost(t, "first", "second"), mustList(t, twoPlugins)
	for _, rt := range []*libcni.RuntimeConf{{ContainerID: "../x", IfName: "eth0"}, {IfName: "eth0"}, {ContainerID: "c"}, {ContainerID: "c", IfName: "a/b"}} {
		if _, err := h.cni.AddNetworkList(context.Background(), list, rt); err == nil {
			t.Errorf("%+v was accepted", rt)
		}
	}
	h.expect("", nil)
}

func TestDisableCheck(t *testing.T) {
	t.Parallel()
	h := newRuntimeHost(t, "first")
	list := mustList(t, `{"cniVersion":"1.0.0","name":"net","disableCheck":"true","plugins":[{"type":"first"}]}`)
	if err := h.cni.CheckNetworkList(context.Background(), list, runtimeConf("c1")); err != nil {
		t.Error(err)
	}
	h.expect("", nil)
}

// When the context ends, the running plugin is killed and all plugins are deleted.
func TestCancelledAdd(t *testing.T) {
	t.Parallel()
	h := newRuntimeHost(t, "first", "second")
	list := mustList(t, `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"first"},{"type":"second","wait":"ADD"}]}`)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for ctx.Err() == nil && !h.called("second ADD") {
			time.Sleep(10 * time.Millisecond)
		}
	}()
	start := time.Now()
	_, err := h.cni.AddNetworkList(ctx, list, runtimeConf("c1"))
	if !errors.Is(err, context.Canceled) || time.Since(start) > kerneltest.Slow(10*time.Second) { // the plugin waits for 100 s
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	h.expect("first ADD, second ADD, second DEL, first DEL", nil)
}

// A second ADD of an attachment, which is cancelled, leaves the attachment in place.
func TestCancelledAddOfAnExistingAttachment(t *testing.T) {
	t.Parallel()
	h := newRuntimeHost(t, "first")
	list, rt := mustList(t, `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"first"}]}`), runtimeConf("c1")
	if _, err := h.cni.AddNetworkList(t.Context(), list, rt); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.cni.AddNetworkList(ctx, list, rt); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	h.expect("first ADD", nil)
	if r, _ := h.cni.GetNetworkListCachedResult(list, rt); r == nil {
		t.Error("the result is not cached any more")
	}
}

// A second ADD that is cancelled while the first one works does not delete the attachment. If both are cancelled, one of
// them does.
func TestCancelledAddDuringAnother(t *testing.T) {
	t.Parallel()
	for _, both := range []bool{false, true} {
		h := newRuntimeHost(t, "first")
		list, rt := mustList(t, `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"first","wait":"ADD"}]}`), runtimeConf("c1")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { _, err := h.cni.AddNetworkList(ctx, list, rt); done <- err }()
		kerneltest.Until(t, func() bool { return h.called("first ADD") })
		second, cancelSecond := context.WithCancel(t.Context())
		cancelSecond()
		if both {
			cancel()
		}
		if _, err := h.cni.AddNetworkList(second, list, rt); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if !both && h.called("first DEL") {
			t.Error("the second ADD deleted the attachment of the first")
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if !h.called("first DEL") {
			t.Error("the cancelled ADD left its attachment")
		}
	}
}

// The cache file has the format that other runtimes' libraries write and read.
func TestCacheFile(t *testing.T) {
	t.Parallel()
	h := newRuntimeHost(t, "first")
	conf := `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"first"}]}`
	if _, err := h.cni.AddNetworkList(context.Background(), mustList(t, conf), runtimeConf("c1")); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(h.cache, "results", "net-c1-eth0"))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	want := `{"kind":"cniCacheV1","containerId":"c1","config":"eyJjbmlWZXJzaW9uIjoiMS4wLjAiLCJuYW1lIjoibmV0IiwicGx1Z2lucyI6W3sidHlwZSI6ImZpcnN0In1dfQ==",` +
		`"ifName":"eth0","networkName":"net","netns":"/run/netns/x","cniArgs":[["A","1"]],"capabilityArgs":{"ips":["10.1.0.9/24"],"mac":"02:00:00:00:00:01"},` +
		`"result":{"cniVersion":"1.1.0","interfaces":[{"name":"first"}],"ips":[{"address":"10.1.0.2/24"}]}}`
	if string(data) != want {
		t.Errorf("got\n%s\nwant\n%s", data, want)
	}
	if entries, err := os.ReadDir(h.cache); err != nil || len(entries) != 1 {
		t.Errorf("left in the cache directory: %v, %v", entries, err)
	}
}
