package podnet_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/podnet"
)

// TestTeardownWithoutOneSource removes, one after the other, each source from which a tear-down knows a pod.
func TestTeardownWithoutOneSource(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, n *node, p *podnet.Pod){
		"namespace":        func(t *testing.T, _ *node, p *podnet.Pod) { kerneltest.Gone(t, p.Netns) },
		"namespace's path": func(t *testing.T, _ *node, p *podnet.Pod) { kerneltest.Gone(t, p.Netns); must(t, os.Remove(p.Netns)) },
		"configuration":    func(t *testing.T, n *node, _ *podnet.Pod) { must(t, os.RemoveAll(n.conf)) },
		"cache":            func(t *testing.T, n *node, _ *podnet.Pod) { must(t, os.RemoveAll(n.cache)) },
		"note":             func(t *testing.T, n *node, _ *podnet.Pod) { must(t, os.RemoveAll(n.state)) },
		"note, damaged": func(t *testing.T, n *node, p *podnet.Pod) {
			must(t, os.Truncate(filepath.Join(n.state, p.ID+".json"), 40))
		},
		"note, a FIFO": func(t *testing.T, n *node, p *podnet.Pod) {
			file := filepath.Join(n.state, p.ID+".json")
			must(t, os.Remove(file))
			must(t, syscall.Mkfifo(file, 0o600))
			_, err := n.PodStatus(p.ID)
			wants(t, err, file+": not a regular file")
		},
		"known version": func(t *testing.T, n *node, p *podnet.Pod) { // an older version left a note after a failed ADD
			must(t, os.RemoveAll(n.cache))
			file := filepath.Join(n.state, p.ID+".json")
			raw, err := os.ReadFile(file)
			must(t, err)
			raw = regexp.MustCompile(`"cniVersion": ?"[^"]*"`).ReplaceAll(raw, []byte(`"cniVersion":"2.0.0"`))
			must(t, os.WriteFile(file, raw, 0o600))
		},
		"note, cache and namespace": func(t *testing.T, n *node, p *podnet.Pod) {
			must(t, os.RemoveAll(n.state))
			must(t, os.RemoveAll(n.cache))
			kerneltest.Gone(t, p.Netns)
		},
		"note, configuration and namespace": func(t *testing.T, n *node, p *podnet.Pod) {
			must(t, os.RemoveAll(n.state))
			must(t, os.RemoveAll(n.conf))
			kerneltest.Gone(t, p.Netns)
		},
		"cache, configuration and namespace": func(t *testing.T, n *node, p *podnet.Pod) {
			must(t, os.RemoveAll(n.cache))
			must(t, os.RemoveAll(n.conf))
			kerneltest.Gone(t, p.Netns)
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, exec func(*podnet.Options)) {
				n := newNode(t, exec)
				n.bridge("10-a.conflist", "a", 1, "")
				n.bridge("20-b.conflist", "b", 2, `"ipMasq": true,`)
				p := n.pod("web", podnet.Network{}, podnet.Network{Name: "b"})
				_, err := n.SetUpPod(t.Context(), p)
				must(t, err)
				lose(t, n, &p)
				n.again()
				must(t, n.TearDownPod(t.Context(), p.ID))
				n.nothingLeft("web")
				must(t, n.TearDownPod(t.Context(), p.ID))
			})
		})
	}
}

// TestTeardownWithoutAnySource removes all sources. A hook then removes Fairlead's objects, and without a hook the error says
// what to do.
func TestTeardownWithoutAnySource(t *testing.T) {
	t.Parallel()
	var left podnet.Leftover
	n := newNode(t, within)
	n.bridge("10-a.conflist", "a", 1, "")
	p := n.pod("web")
	_, err := n.SetUpPod(t.Context(), p)
	must(t, err)
	conf := filepath.Join(n.conf, "10-a.conflist")
	saved, err := os.ReadFile(conf)
	must(t, err)
	must(t, os.RemoveAll(n.state))
	must(t, os.RemoveAll(n.cache))
	must(t, os.Remove(conf))
	n.again()
	wants(t, n.TearDownPod(t.Context(), p.ID), n.name("a"), "fairlead gc --all")
	n.options.RemoveLeftover = func(_ context.Context, l podnet.Leftover) error { left = l; return nil }
	n.again()
	must(t, n.TearDownPod(t.Context(), p.ID))
	if want := (podnet.Leftover{ContainerID: p.ID, Network: n.name("a"), IfName: "eth0", Netns: p.Netns}); left != want {
		t.Errorf("left %+v, want %+v", left, want)
	}
	must(t, os.WriteFile(conf, saved, 0o644))
	n.again()
	must(t, n.TearDownPod(t.Context(), p.ID))
	n.nothingLeft("web")
}

// TestTearDownReplaced checks that another pod's namespace at the same path stays unchanged.
func TestTearDownReplaced(t *testing.T) {
	t.Parallel()
	n := newNode(t, within)
	n.bridge("10-a.conflist", "a", 1, "")
	p := n.pod("old")
	_, err := n.SetUpPod(t.Context(), p)
	must(t, err)
	other := kerneltest.Netns(t)
	kerneltest.Gone(t, p.Netns)
	kerneltest.Run(t, "mount", "--bind", other, p.Netns)
	kerneltest.In(t, other, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "x0")
	must(t, n.TearDownPod(t.Context(), p.ID))
	if got := n.links(other); !strings.Contains(got, "eth0") {
		t.Errorf("the other pod has %s", got)
	}
	n.nothingLeft("old")
}

// TestTearDownTriesEverything has one network that fails and one that hangs. The others are removed, the error names
// both, and the next call only handles those two.
func TestTearDownTriesEverything(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(o *podnet.Options) {
		o.CleanUpTime = kerneltest.Slow(3 * time.Second)
	})
	fault := filepath.Join(t.TempDir(), "fault")
	n.script("broken", `[ $CNI_COMMAND = DEL ] && [ -e `+fault+` ] && { echo '{"code":123,"msg":"no luck"}'; exit 1; }`)
	n.script("slow", `[ $CNI_COMMAND = DEL ] && [ -e `+fault+` ] && exec sleep 60`)
	n.bridge("10-a.conflist", "a", 1, "")
	n.bridge("20-b.conflist", "b", 2, "", `{"type": "broken"}`)
	n.bridge("30-c.conflist", "c", 3, "", `{"type": "slow"}`)
	p := n.pod("web", podnet.Network{}, podnet.Network{Name: "b"}, podnet.Network{Name: "c"})
	n.options.Timeout = time.Minute
	n.again()
	_, err := n.SetUpPod(t.Context(), p)
	must(t, err)
	must(t, os.WriteFile(fault, nil, 0o644))
	n.options.Timeout = kerneltest.Slow(time.Second)
	n.again()
	err = n.TearDownPod(t.Context(), p.ID)
	wants(t, err, "no luck", "cleaning up took longer than", n.name("b"), n.name("c"))
	if got := n.links(p.Netns); strings.Contains(got, "eth0") {
		t.Errorf("the pod has %s", got)
	}
	s, err := n.PodStatus(p.ID)
	if err != nil || len(s.Attachments) != 2 || s.State != podnet.StateInterrupted {
		t.Errorf("what failed is noted: %+v, %v", s, err)
	}
	must(t, os.Remove(fault))
	n.options.Timeout, n.options.CleanUpTime = time.Minute, time.Minute
	n.again()
	must(t, n.TearDownPod(t.Context(), p.ID))
	n.nothingLeft("web")
}

// TestAttachDetach attaches and detaches one network of a running pod.
func TestAttachDetach(t *testing.T) {
	both(t, func(t *testing.T, exec func(*podnet.Options)) {
		n := newNode(t, exec)
		n.script("broken", `[ $CNI_COMMAND = ADD ] && { echo '{"code":123,"msg":"no luck"}'; exit 1; }`)
		n.bridge("10-a.conflist", "a", 1, "")
		n.bridge("20-b.conflist", "b", 2, "")
		n.bridge("30-c.conflist", "c", 3, "", `{"type": "broken"}`)
		p := n.pod("web")
		_, err := n.Attach(t.Context(), p.ID, podnet.Network{Name: n.name("b")})
		wants(t, err, "is not set up")
		_, err = n.SetUpPod(t.Context(), p)
		must(t, err)
		a, err := n.Attach(t.Context(), p.ID, podnet.Network{Name: n.name("b")})
		must(t, err)
		if a.IfName != "net1" || a.Default || len(a.IPs()) != 1 {
			t.Errorf("attached %+v", a)
		}
		_, err = n.Attach(t.Context(), p.ID, podnet.Network{Name: n.name("b"), IfName: "net1"})
		wants(t, err, "has an interface net1")
		_, err = n.Attach(t.Context(), p.ID, podnet.Network{Name: n.name("c")})
		wants(t, err, "no luck")
		if got := n.links(p.Netns); got != "lo eth0 net1" {
			t.Errorf("the pod has %s", got)
		}
		must(t, n.CheckPod(t.Context(), p.ID))
		must(t, n.Detach(t.Context(), p.ID, "net1"))
		wants(t, n.Detach(t.Context(), p.ID, "net1"), "has no interface net1")
		wants(t, n.Detach(t.Context(), p.ID, "lo"), "has no interface lo")
		must(t, n.CheckPod(t.Context(), p.ID))
		must(t, n.TearDownPod(t.Context(), p.ID))
		n.nothingLeft("web")
	})
}

// TestSetupAfterDetach checks that a pod without a network that it asks for does not count as set up as requested.
func TestSetupAfterDetach(t *testing.T) {
	t.Parallel()
	n := newNode(t, within)
	n.bridge("10-a.conflist", "a", 1, "")
	n.bridge("20-b.conflist", "b", 2, "")
	p := n.pod("web", podnet.Network{}, podnet.Network{Name: "b"})
	_, err := n.SetUpPod(t.Context(), p)
	must(t, err)
	alone := n.pod("alone")
	_, err = n.SetUpPod(t.Context(), alone)
	must(t, err)
	must(t, n.Detach(t.Context(), alone.ID, "eth0"))
	if s, err := n.SetUpPod(t.Context(), alone); !errors.Is(err, podnet.ErrExists) {
		t.Errorf("the default network only: got %v, %v", s, err)
	}
	must(t, n.TearDownPod(t.Context(), alone.ID))
	must(t, n.Detach(t.Context(), p.ID, "net1"))
	if s, err := n.SetUpPod(t.Context(), p); !errors.Is(err, podnet.ErrExists) {
		t.Errorf("got %v, %v", s, err)
	}
	_, err = n.Attach(t.Context(), p.ID, podnet.Network{Name: n.name("b")})
	must(t, err)
	_, err = n.SetUpPod(t.Context(), p)
	must(t, err)
	must(t, n.TearDownPod(t.Context(), p.ID))
	n.nothingLeft("web")
}

// TestAttachInReplacedNamespace checks that a pod's path that leads to another namespace by now gets no interface.
func TestAttachInReplacedNamespace(t *testing.T) {
	t.Parallel()
	n := newNode(t, within)
	n.bridge("10-a.conflist", "a", 1, "")
	n.bridge("20-b.conflist", "b", 2, "")
	p := n.pod("web")
	_, err := n.SetUpPod(t.Context(), p)
	must(t, err)
	n.editNote(p.ID, func(note map[string]any) { note["netnsCookie"] = netns.ID{Cookie: 1}.StoredCookie() })
	_, err = n.Attach(t.Context(), p.ID, podnet.Network{Name: n.name("b")})
	wants(t, err, "is gone, or the path leads to another namespace")
	if got := n.links(p.Netns); got != "lo eth0" {
		t.Errorf("the namespace has %s", got)
	}
	kerneltest.Gone(t, p.Netns)
	_, err = n.Attach(t.Context(), p.ID, podnet.Network{Name: n.name("b")})
	wants(t, err, "is gone, or the path leads to another namespace")
	must(t, n.TearDownPod(t.Context(), p.ID))
}

// TestGC checks that GC removes invalid pods, with and without a note, and keeps the others.
func TestGC(t *testing.T) {
	both(t, func(t *testing.T, exec func(*podnet.Options)) {
		n := newNode(t, exec)
		n.bridge("10-a.conflist", "a", 1, "")
		n.bridge("20-b.conflist", "b", 2, "")
		var pods []podnet.Pod
		for _, id := range []string{"keep", "unnoted", "recorded", "old", "lost"} {
			p := n.pod(id, podnet.Network{}, podnet.Network{Name: "b"})
			_, err := n.SetUpPod(t.Context(), p)
			must(t, err)
			pods = append(pods, p)
		}
		for _, p := range []podnet.Pod{pods[1], pods[2], pods[4]} {
			must(t, os.Remove(filepath.Join(n.state, p.ID+".json")))
		}
		cached, err := filepath.Glob(filepath.Join(n.cache, "results", "*-"+pods[2].ID+"-*"))
		if err != nil || len(cached) != 3 {
			t.Fatalf("cached: %v, %v", cached, err)
		}
		for _, file := range cached {
			if !strings.Contains(file, "loopback") { // a list of version 1.0.0, so the plugin has no GC
				must(t, os.Remove(file))
			}
		}
		must(t, n.GC(t.Context(), []string{pods[0].ID, pods[1].ID, pods[2].ID}))
		for _, p := range pods[:3] {
			if got := n.links(p.Netns); got != "lo eth0 net1" {
				t.Errorf("%s has %s", p.Name, got)
			}
		}
		n.nothingLeft("old")
		n.nothingLeft("lost")
		must(t, n.GC(t.Context(), nil))
		n.nothingLeft("keep")
		n.nothingLeft("unnoted")
		n.nothingLeft("recorded")
	})
}

// TestGCKeepsYoungerPod sets up a pod again while a GC that listed it works on another pod. The GC keeps it, and removes
// the other one, although the clock was set back before each of them.
func TestGCKeepsYoungerPod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	reached, gate := filepath.Join(t.TempDir(), "reached"), filepath.Join(t.TempDir(), "gate")
	must(t, syscall.Mkfifo(gate, 0o600))
	n.script("slow", `[ $CNI_COMMAND = DEL ] && [ $CNI_CONTAINERID = `+n.name("first")+` ] && { : >`+reached+`; cat `+gate+` >/dev/null; }`)
	n.bridge("10-a.conflist", "a", 1, "", `{"type": "slow"}`)
	first, again := n.pod("first"), n.pod("later") // the GC works in the order of the names
	for _, p := range []podnet.Pod{first, again} {
		_, err := n.SetUpPod(t.Context(), p)
		must(t, err)
	}
	n.created(first, "2100-01-01T00:00:00Z")
	collected := make(chan error)
	go func() { collected <- n.GC(t.Context(), nil) }()
	// Wait until the GC removes the first pod.
	kerneltest.Until(t, func() bool { _, err := os.Stat(reached); return err == nil })
	must(t, n.TearDownPod(t.Context(), again.ID))
	_, err := n.SetUpPod(t.Context(), again)
	must(t, err)
	n.created(again, "2000-01-01T00:00:00Z")
	must(t, os.WriteFile(gate, nil, 0))
	must(t, <-collected)
	n.nothingLeft("first")
	if got := n.links(again.Netns); got != "lo eth0" {
		t.Errorf("the younger pod has %s", got)
	}
	must(t, n.CheckPod(t.Context(), again.ID))
}

// TestGCKeepsPodSetUpMeanwhile sets up a pod while the caller of GC looks for valid pods.
func TestGCKeepsPodSetUpMeanwhile(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.bridge("10-a.conflist", "a", 1, "")
	old, younger := n.pod("old"), n.pod("younger")
	_, err := n.SetUpPod(t.Context(), old)
	must(t, err)
	must(t, n.GCWith(t.Context(), func() ([]string, error) {
		_, err := n.SetUpPod(t.Context(), younger)
		return nil, err
	}))
	n.nothingLeft("old")
	if got := n.links(younger.Netns); got != "lo eth0" {
		t.Errorf("the younger pod has %s", got)
	}
	must(t, n.CheckPod(t.Context(), younger.ID))
}
