package delegate

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/plugin"
)

// TestPodDelOnFullDisk checks that DEL needs no space and no inode: a node with a full disk stops pods to get some.
func TestPodDelOnFullDisk(t *testing.T) {
	h := newPodHost(t)
	p := Pod(&plugin.Exec{})
	root := filepath.Dir(h.dir.Root())
	kerneltest.PrivateMounts(t)
	for _, err := range []error{
		syscall.Mount("test", root, "tmpfs", 0, "size=256k,nr_inodes=64"), os.Mkdir(filepath.Join(root, "multus"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	defer syscall.Unmount(root, syscall.MNT_DETACH)
	h.define("good", `{"cniVersion": "1.0.0", "type": "one"}`, "")
	h.define("busy", `{"cniVersion": "1.0.0", "type": "one", "x": "refuseDEL"}`, "")
	args := h.args(`{"k8s.v1.cni.cncf.io/networks": "good"}`)
	if _, err := p.Funcs.Add(t.Context(), args); err != nil {
		t.Fatal(err)
	}
	busy := h.args(`{"k8s.v1.cni.cncf.io/networks": "busy"}`)
	busy.ContainerID = "b"
	if _, err := p.Funcs.Add(t.Context(), busy); err != nil {
		t.Fatal(err)
	}
	multus := h.args(`{}`)
	multus.ContainerID = "m"
	encode := func(config string) string { return base64.StdEncoding.EncodeToString([]byte(config)) }
	h.file(filepath.Join(root, "multus", "m"), `[{"Bytes": "`+encode(`{"cniVersion": "1.0.0", "name": "pods", "type": "one"}`)+`"},
		{"Name": "shop/lan", "Bytes": "`+encode(`{"cniVersion": "1.0.0", "name": "lan", "type": "one"}`)+`"}]`)
	if err := os.WriteFile(filepath.Join(root, "filler"), make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	for i, err := 0, error(nil); !errors.Is(err, syscall.ENOSPC); i++ {
		if err = os.Mkdir(filepath.Join(root, fmt.Sprint("filler", i)), 0o700); i > 64 {
			t.Fatalf("the disk has no limit: %v", err)
		}
	}
	h.calls()
	if err := p.Funcs.Del(t.Context(), busy); err == nil || !strings.Contains(err.Error(), "it is busy") {
		t.Errorf("DEL of a busy network: %v", err)
	}
	wantCalls(t, h.calls(), "DEL net1", "DEL eth0")
	if _, err := h.state.Pod("b", "eth0"); err != nil {
		t.Errorf("the record of a failed DEL: %v", err)
	}
	if err := p.Funcs.Del(t.Context(), multus); err != nil {
		t.Error(err)
	}
	wantCalls(t, h.calls(), `DEL net1 "name":"lan"`, "DEL eth0")
	if err := p.Funcs.Del(t.Context(), args); err != nil {
		t.Error(err)
	}
	wantCalls(t, h.calls(), "DEL net1", "DEL eth0")
	if _, err := h.state.Pod("c", "eth0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the record: %v", err)
	}
}
