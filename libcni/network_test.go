package libcni_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/libcni"
)

func TestGC(t *testing.T) {
	t.Parallel()
	h, ctx := newRuntimeHost(t, "first", "second"), context.Background()
	list := mustList(t, `{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"first","capabilities":{"ips":true}},{"type":"second","fail":"GC"}]}`)
	other := mustList(t, `{"cniVersion":"1.1.0","name":"other","plugins":[{"type":"first"}]}`)
	for _, c := range []struct {
		list *libcni.NetworkConfigList
		id   string
	}{{list, "alive"}, {list, "stale"}, {other, "foreign"}} {
		if _, err := h.cni.AddNetworkList(ctx, c.list, runtimeConf(c.id)); err != nil {
			t.Fatal(err)
		}
	}
	h.calls()
	err := h.cni.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: []cni.Attachment{{ContainerID: "alive", IfName: "eth0"}}})
	if err == nil || !strings.Contains(err.Error(), `plugin type="second" name="net" failed (gc): as told`) {
		t.Errorf("got %v", err)
	}
	valid := `[{"containerID":"alive","ifname":"eth0"}]`
	h.expect("second DEL, first DEL, first GC, second GC", map[string]string{
		"first GC": `{"type":"first","cniVersion":"1.1.0","name":"net","cni.dev/attachments":` + valid + `,"cni.dev/valid-attachments":` + valid + `}`,
	})
	if got := h.cachedIDs(); got != "foreign alive" && got != "alive foreign" {
		t.Errorf("cached: %s", got)
	}
}

// GC keeps attachments that are added during the GC, even if the caller's list is older.
func TestGCKeepsAddsInProgress(t *testing.T) {
	t.Parallel()
	h, ctx := newRuntimeHost(t, "first", "slow"), context.Background()
	list := mustList(t, `{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"first"}]}`)
	slow := mustList(t, `{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"slow","wait":"ADD"}]}`)
	if _, err := h.cni.AddNetworkList(ctx, list, runtimeConf("stale")); err != nil {
		t.Fatal(err)
	}
	adding, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() {
		_, err := h.cni.AddNetworkList(adding, slow, runtimeConf("adding"))
		ended <- err
	}()
	for h.asked("slow ADD") == 0 {
		time.Sleep(time.Millisecond)
	}
	h.calls()
	if err := h.cni.GCNetworkList(ctx, list, nil); err != nil {
		t.Error(err)
	}
	valid := `[{"containerID":"adding","ifname":"eth0"}]`
	h.expect("first DEL, first GC", map[string]string{
		"first GC": `{"type":"first","cniVersion":"1.1.0","name":"net","cni.dev/attachments":` + valid + `,"cni.dev/valid-attachments":` + valid + `}`,
	})
	cancel()
	if err := <-ended; err == nil {
		t.Error("an ADD whose context ended succeeded")
	}
	h.calls()
	if err := h.cni.GCNetworkList(ctx, list, nil); err != nil {
		t.Error(err)
	}
	h.expect("first GC", map[string]string{
		"first GC": `{"type":"first","cniVersion":"1.1.0","name":"net","cni.dev/attachments":[],"cni.dev/valid-attachments":[]}`,
	})
}

// asked returns how often a plugin was called.
func (h *host) asked(call string) int {
	found, err := filepath.Glob(filepath.Join(h.log, "* "+call))
	if err != nil {
		h.t.Fatal(err)
	}
	return len(found)
}

func (h *host) cachedIDs() string {
	h.t.Helper()
	list, err := h.cni.GetCachedAttachments("")
	if err != nil {
		h.t.Fatal(err)
	}
	var ids []string
	for _, a := range list {
		ids = append(ids, a.ContainerID)
	}
	return strings.Join(ids, " ")
}

// GC continues after errors: a missing plugin does not stop the others.
func TestGCContinuesAfterErrors(t *testing.T) {
	t.Parallel()
	h, ctx := newRuntimeHost(t, "first", "second"), context.Background()
	list := mustList(t, `{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"first","fail":"DEL"},{"type":"second"}]}`)
	for _, id := range []string{"a", "b"} {
		if _, err := h.cni.AddNetworkList(ctx, list, runtimeConf(id)); err != nil {
			t.Fatal(err)
		}
	}
	h.calls()
	list.Plugins = append([]*libcni.NetworkConfig{{Network: &cni.PluginConf{Type: "missing"}, Bytes: []byte("{}")}}, list.Plugins...)
	err := h.cni.GCNetworkList(ctx, list, nil)
	for _, want := range []string{"container a,", "container b,", `plugin type="missing"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	h.expect("first GC, second GC", nil)
}

func TestOlderVersions(t *testing.T) {
	t.Parallel()
	h, ctx := newRuntimeHost(t, "first"), context.Background()
	list := mustList(t, `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"first"}]}`)
	if _, err := h.cni.AddNetworkList(ctx, list, runtimeConf("a")); err != nil {
		t.Fatal(err)
	}
	if err := h.cni.GetStatusNetworkList(ctx, list); err != nil {
		t.Error(err)
	}
	if err := h.cni.GCNetworkList(ctx, list, nil); err != nil {
		t.Error(err)
	}
	h.expect("first ADD, first DEL", nil) // GC runs DEL, but neither GC nor STATUS
	list.DisableGC = true
	if _, err := h.cni.AddNetworkList(ctx, list, runtimeConf("a")); err != nil {
		t.Fatal(err)
	}
	if err := h.cni.GCNetworkList(ctx, list, nil); err != nil {
		t.Error(err)
	}
	h.expect("first ADD", nil)
}

func TestStatus(t *testing.T) {
	t.Parallel()
	h := newRuntimeHost(t, "first", "second", "third")
	list := mustList(t, `{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"first"},{"type":"second","fail":"STATUS"},{"type":"third"}]}`)
	err := h.cni.GetStatusNetworkList(context.Background(), list)
	if e, ok := err.(*cni.Error); !ok || e.Code != cni.CodePluginNotAvailable {
		t.Errorf("got %#v", err)
	}
	h.expect("first STATUS, second STATUS", map[string]string{"first STATUS": `{"type":"first","cniVersion":"1.1.0","name":"net"}`})
}

func TestValidate(t *testing.T) {
	t.Parallel()
	h, ctx := newRuntimeHost(t, "first", "second"), context.Background()
	caps, err := h.cni.ValidateNetworkList(ctx, mustList(t, `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"first","capabilities":{"mac":true,"ips":true}},{"type":"second","capabilities":{"ips":true,"no":false}}]}`))
	if err != nil || !slices.Equal(caps, []string{"ips", "mac"}) {
		t.Errorf("got %v, %v", caps, err)
	}
	_, err = h.cni.ValidateNetworkList(ctx, mustList(t, `{"cniVersion":"0.2.0","name":"net","plugins":[{"type":"first"},{"type":"missing"}]}`))
	for _, want := range []string{`plugin first does not support config version "0.2.0"`, `failed to find plugin "missing"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
	conf := &libcni.NetworkConfig{Network: &cni.PluginConf{Type: "first", CNIVersion: "0.4.0"}}
	if _, err := h.cni.ValidateNetwork(ctx, conf); err != nil {
		t.Error(err)
	}
	info, err := h.cni.GetVersionInfo(ctx, "second")
	if err != nil || len(info.SupportedVersions) != 4 {
		t.Errorf("got %v, %v", info, err)
	}
}

// TestCacheHasDropIns checks that a DEL from the cache runs also the plugins that came from other files.
func TestCacheHasDropIns(t *testing.T) {
	t.Parallel()
	h, ctx := newRuntimeHost(t, "first", "second"), context.Background()
	dir := writeFiles(t, map[string]string{
		"10.conflist": `{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"first"}]}`, "net/1.conf": `{"type":"second"}`,
		"20.conflist": `{"cniVersion":"1.1.0","name":"only"}`, "only/1.conf": `{"type":"second"}`,
	})
	for file, want := range map[string]string{"10.conflist": "second DEL, first DEL", "20.conflist": "second DEL"} {
		list, err := libcni.ConfListFromFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.cni.AddNetworkList(ctx, list, runtimeConf("c")); err != nil {
			t.Fatal(err)
		}
		h.calls()
		cached, err := h.cni.GetCachedAttachments("c")
		if err != nil || len(cached) != 1 {
			t.Fatalf("cached: %v, %v", cached, err)
		}
		list, err = cached[0].List()
		if err != nil {
			t.Fatal(err)
		}
		if err := h.cni.DelNetworkList(ctx, list, runtimeConf("c")); err != nil {
			t.Fatal(err)
		}
		h.expect(want, nil)
	}
}

// TestGCKeepsAddsSinceListed checks that GC keeps an attachment that was added after the caller made its list.
func TestGCKeepsAddsSinceListed(t *testing.T) {
	t.Parallel()
	h, ctx := newRuntimeHost(t, "first"), context.Background()
	list := mustList(t, `{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"first"}]}`)
	if _, err := h.cni.AddNetworkList(ctx, list, runtimeConf("stale")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // files have the time of the kernel's last tick
	listed := time.Now()
	time.Sleep(20 * time.Millisecond)
	if _, err := h.cni.AddNetworkList(ctx, list, runtimeConf("younger")); err != nil {
		t.Fatal(err)
	}
	if err := h.cni.GCNetworkList(ctx, list, &libcni.GCArgs{Listed: listed}); err != nil {
		t.Fatal(err)
	}
	if got := h.cachedIDs(); got != "younger" {
		t.Errorf("cached: %s", got)
	}
	if err := h.cni.GCNetworkList(ctx, list, nil); err != nil || h.cachedIDs() != "" {
		t.Errorf("cached: %s, %v", h.cachedIDs(), err)
	}
}
