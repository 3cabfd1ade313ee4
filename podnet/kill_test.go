package podnet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/podnet"
)

// setUpAndHang acts as a runtime that is killed during a set-up. It gets the pod and options as JSON.
func setUpAndHang() {
	var in struct {
		Conf, Bin, Cache, State string
		Pod                     podnet.Pod
	}
	err := json.Unmarshal([]byte(os.Args[1]), &in)
	if err == nil {
		var m *podnet.Manager
		m, err = podnet.New(podnet.Options{ConfDirs: []string{in.Conf}, PluginDirs: []string{in.Bin}, CacheDir: in.Cache, StateDir: in.State, RunDir: os.Getenv("FAIRLEAD_RUN")})
		if err == nil {
			_, err = m.SetUpPod(context.Background(), in.Pod)
		}
	}
	fmt.Fprintln(os.Stderr, "not killed:", err)
	os.Exit(1)
}

// TestRuntimeKilledDuringSetup kills a runtime during a set-up, with one network attached and one half done. Another runtime that knows
// only the ID removes everything, even after the network files are gone.
func TestRuntimeKilledDuringSetup(t *testing.T) {
	t.Parallel()
	for _, conf := range []string{"there", "gone"} {
		t.Run(conf, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			mark := filepath.Join(t.TempDir(), "reached")
			n.script("slow", `[ $CNI_COMMAND = ADD ] && { echo $$ >`+mark+`~; mv `+mark+`~ `+mark+`; exec sleep 60; }`)
			n.bridge("10-a.conflist", "a", 1, "")
			n.bridge("20-b.conflist", "b", 2, "", `{"type": "slow"}`)
			p := n.pod("web", podnet.Network{}, podnet.Network{Name: "b"})
			killAt(t, n, p, mark)
			if s, err := n.PodStatus(p.ID); err != nil || s.State != podnet.StateInterrupted {
				t.Errorf("after the kill: %v, %v", s, err)
			}
			wants(t, n.CheckPod(t.Context(), p.ID), "was interrupted")
			if conf == "gone" {
				must(t, os.RemoveAll(n.conf))
				n.again()
			}
			must(t, n.TearDownPod(t.Context(), p.ID))
			n.nothingLeft("web")
			if got := n.links(p.Netns); got != "lo" {
				t.Errorf("the pod has %s", got)
			}
		})
	}
}

// TestKilledThenAgain checks that a set-up after a kill starts over.
func TestKilledThenAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	mark := filepath.Join(t.TempDir(), "reached")
	n.script("slow", `[ $CNI_COMMAND = ADD ] && [ ! -e `+mark+` ] && { echo $$ >`+mark+`~; mv `+mark+`~ `+mark+`; exec sleep 60; }`)
	n.bridge("10-a.conflist", "a", 1, "", `{"type": "slow"}`)
	p := n.pod("web")
	killAt(t, n, p, mark)
	_, err := n.SetUpPod(t.Context(), p)
	must(t, err)
	must(t, n.CheckPod(t.Context(), p.ID))
	if got := n.links(p.Netns); got != "lo eth0" {
		t.Errorf("the pod has %s", got)
	}
	must(t, n.TearDownPod(t.Context(), p.ID))
	n.nothingLeft("web")
}

// killAt kills a runtime and its plugin when the plugin has written the file.
func killAt(t *testing.T, n *node, p podnet.Pod, mark string) {
	t.Helper()
	in, err := json.Marshal(map[string]any{"Conf": n.conf, "Bin": n.bin, "Cache": n.cache, "State": n.state, "Pod": p})
	must(t, err)
	cmd := exec.Command("/proc/self/exe", string(in))
	cmd.Args[0] = "setup-and-hang"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, cmd.Start())
	// Wait until the plugin runs.
	kerneltest.Until(t, func() bool { _, err := os.Stat(mark); return err == nil })
	must(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)) // its plugins are in its process group
	_ = cmd.Wait()
}
