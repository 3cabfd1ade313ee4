package podnet_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/podnet"
)

// both runs a test with the plugins as processes and within the process.
func both(t *testing.T, test func(*testing.T, func(*podnet.Options))) {
	t.Parallel()
	t.Run("processes", func(t *testing.T) { t.Parallel(); test(t, func(*podnet.Options) {}) })
	t.Run("within", func(t *testing.T) { t.Parallel(); test(t, within) })
}

// TestSetupOfUnknownVersion checks that a network whose version no plugin supports fails before a plugin runs. After that, a
// teardown would fail, too.
func TestSetupOfUnknownVersion(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.bridge("10-a.conflist", "a", 1, "")
	n.write("20-b.conflist", fmt.Sprintf(`{"cniVersion": "2.0.0", "name": %q, "plugins": [{"type": "bridge"}]}`, n.name("b")))
	n.Reload()
	_, err := n.SetUpPod(t.Context(), n.pod("web", podnet.Network{}, podnet.Network{Name: "b"}))
	wants(t, err, `20-b.conflist:1:16: cniVersion = "2.0.0": ADD rejects this version`)
	if got, err := n.List(); err != nil || len(got) > 0 {
		t.Errorf("set up: %v, %v", got, err)
	}
}

// TestSetupCheckTeardown sets up, checks and tears down a pod on three networks.
func TestSetupCheckTeardown(t *testing.T) {
	both(t, func(t *testing.T, exec func(*podnet.Options)) {
		n := newNode(t, exec)
		n.bridge("10-a.conflist", "a", 1, "")
		n.bridge("20-b.conflist", "b", 2, "")
		p := n.pod("web", podnet.Network{}, podnet.Network{Name: "b", DefaultRoute: nil}, podnet.Network{Name: "b", IfName: "back0"})
		s, err := n.SetUpPod(t.Context(), p)
		must(t, err)
		var names []string
		for _, a := range s.Attachments {
			names = append(names, a.Network+" "+a.IfName)
		}
		want := strings.Join([]string{n.name("a") + " eth0", n.name("b") + " net1", n.name("b") + " back0"}, ", ")
		if got := strings.Join(names, ", "); got != want || s.State != podnet.StateReady {
			t.Errorf("attached to %s (%s), want %s", got, s.State, want)
		}
		if got := n.links(p.Netns); got != "lo eth0 net1 back0" && got != "lo eth0 back0 net1" {
			t.Errorf("the pod's links are %s", got)
		}
		kerneltest.In(t, p.Netns, "ping", "-c1", "-W2", "127.0.0.1")
		kerneltest.In(t, p.Netns, "ping", "-c1", "-W2", s.IPs()[0].String())
		must(t, n.CheckPod(t.Context(), p.ID))
		kerneltest.In(t, p.Netns, "ip", "addr", "flush", "dev", "net1")
		wants(t, n.CheckPod(t.Context(), p.ID), n.name("b"))
		must(t, n.TearDownPod(t.Context(), p.ID))
		if got := n.links(p.Netns); got != "lo" {
			t.Errorf("left in the pod: %s", got)
		}
		n.nothingLeft("web")
		must(t, n.TearDownPod(t.Context(), p.ID))
		if err := n.CheckPod(t.Context(), p.ID); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("check of a pod that is gone: %v", err)
		}
	})
}

// TestSetupKeepsInterface checks that a set-up fails if the namespace has one of the interfaces already, and keeps it. Its
// pair looks like one of the reference plugin bridge, which DEL removes.
func TestSetupKeepsInterface(t *testing.T) {
	both(t, func(t *testing.T, exec func(*podnet.Options)) {
		n := newNode(t, exec)
		n.bridge("10-a.conflist", "a", 1, "")
		p := n.pod("web")
		kerneltest.Run(t, "ip", "link", "add", fmt.Sprintf("veth%08x", n.n), "type", "veth", "peer", "name", "eth0", "netns", p.Netns)
		_, err := n.SetUpPod(t.Context(), p)
		wants(t, err, "has an interface eth0 already")
		if got := n.links(p.Netns); got != "lo eth0" {
			t.Errorf("the pod's links are %s", got)
		}
		kerneltest.In(t, p.Netns, "ip", "link", "del", "eth0")
		n.nothingLeft("web")
	})
}

// TestSetupTwiceChangesNothing checks that a repeated set-up changes nothing, also by another Manager.
func TestSetupTwiceChangesNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t, within)
	n.bridge("10-a.conflist", "a", 1, "")
	p := n.pod("web")
	first, err := n.SetUpPod(t.Context(), p)
	must(t, err)
	n.again()
	second, err := n.SetUpPod(t.Context(), p)
	must(t, err)
	if first.IPs()[0] != second.IPs()[0] {
		t.Errorf("addresses %v, then %v", first.IPs(), second.IPs())
	}
	other := p
	other.Networks = []podnet.Network{{IfName: "eth7"}}
	if _, err := n.SetUpPod(t.Context(), other); !errors.Is(err, podnet.ErrExists) {
		t.Errorf("with other settings: %v", err)
	}
	for name, path := range map[string]string{"another": kerneltest.Netns(t), "a missing": p.Netns + "-missing"} {
		other := p
		other.Netns = path
		if _, err := n.SetUpPod(t.Context(), other); !errors.Is(err, podnet.ErrExists) {
			t.Errorf("in %s namespace: %v", name, err)
		}
		must(t, n.CheckPod(t.Context(), p.ID))
	}
	// The namespace is deleted, and the pod gets a new one.
	kerneltest.Gone(t, p.Netns)
	if s, err := n.PodStatus(p.ID); err != nil || s.State != podnet.StateGone {
		t.Errorf("without its namespace: %v, %v", s, err)
	}
	p.Netns = kerneltest.Netns(t)
	third, err := n.SetUpPod(t.Context(), p)
	must(t, err)
	if got := n.links(p.Netns); got != "lo eth0" {
		t.Errorf("in the new namespace: %s, %v", got, third)
	}
	must(t, n.TearDownPod(t.Context(), p.ID))
	n.nothingLeft("web")
}

// TestPodWithoutPath checks that a pod is ready while its network namespace exists, although the path of its set-up is gone.
// "fairlead pod gc" tears down pods whose namespace is gone.
func TestPodWithoutPath(t *testing.T) {
	t.Parallel()
	n := newNode(t, within)
	n.bridge("10-a.conflist", "a", 1, "")
	p := n.pod("web")
	ns := p.Netns
	p.Netns = filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(ns, p.Netns))
	_, err := n.SetUpPod(t.Context(), p)
	must(t, err)
	must(t, os.Remove(p.Netns))
	for _, want := range []string{podnet.StateReady, podnet.StateGone} {
		if pods, err := n.List(); err != nil || len(pods) != 1 || pods[0].State != want {
			t.Errorf("%v, %v, want the state %q", pods, err, want)
		}
		if want == podnet.StateReady {
			kerneltest.Gone(t, ns)
		}
	}
	must(t, n.TearDownPod(t.Context(), p.ID))
}

// TestSetupInReusedNamespace sets up a pod whose note is of an earlier namespace at the same path with the same device
// and inode. Only the cookie differs. Without a cookie, as in the notes of earlier versions, the note is for this
// namespace.
func TestSetupInReusedNamespace(t *testing.T) {
	t.Parallel()
	n := newNode(t, within)
	n.bridge("10-a.conflist", "a", 1, "")
	p := n.pod("web")
	_, err := n.SetUpPod(t.Context(), p)
	must(t, err)
	n.editNote(p.ID, func(note map[string]any) { delete(note, "netnsCookie") })
	must(t, n.CheckPod(t.Context(), p.ID))
	_, err = n.SetUpPod(t.Context(), p)
	must(t, err)
	n.editNote(p.ID, func(note map[string]any) { note["netnsCookie"] = netns.ID{Cookie: 1}.StoredCookie() })
	if s, err := n.PodStatus(p.ID); err != nil || s.State != podnet.StateGone {
		t.Errorf("the state is %v, %v", s, err)
	}
	wants(t, n.CheckPod(t.Context(), p.ID), "is gone, or the path leads to another namespace")
	kerneltest.In(t, p.Netns, "ip", "link", "del", "eth0") // the new namespace has no interface yet
	p.Networks = []podnet.Network{{IfName: "eth7"}}
	_, err = n.SetUpPod(t.Context(), p)
	must(t, err)
	if got := n.links(p.Netns); got != "lo eth7" {
		t.Errorf("the pod has %s", got)
	}
	must(t, n.TearDownPod(t.Context(), p.ID))
	n.nothingLeft("web")
}

// TestFailedSetupLeavesNothing checks that nothing is left when one of several networks fails.
func TestFailedSetupLeavesNothing(t *testing.T) {
	both(t, func(t *testing.T, exec func(*podnet.Options)) {
		n := newNode(t, exec)
		n.script("broken", `[ $CNI_COMMAND = ADD ] && { echo '{"code":123,"msg":"no luck"}'; exit 1; }`)
		n.bridge("10-a.conflist", "a", 1, "")
		n.bridge("20-b.conflist", "b", 2, "", `{"type": "broken"}`)
		n.bridge("30-c.conflist", "c", 3, "")
		p := n.pod("web", podnet.Network{}, podnet.Network{Name: "c"}, podnet.Network{Name: "b"})
		_, err := n.SetUpPod(t.Context(), p)
		wants(t, err, "no luck", `type="broken"`)
		if got := n.links(p.Netns); got != "lo" {
			t.Errorf("the pod has %s", got)
		}
		n.nothingLeft("web")
		if list, err := n.List(); err != nil || len(list) != 0 {
			t.Errorf("listed: %v, %v", list, err)
		}
	})
}

// TestHangingPluginIsKilled checks that a hanging plugin is killed, and that the clean-up gets its own time.
func TestHangingPluginIsKilled(t *testing.T) {
	both(t, func(t *testing.T, exec func(*podnet.Options)) {
		n := newNode(t, exec, func(o *podnet.Options) { o.Timeout = 700 * time.Millisecond })
		n.script("slow", `[ $CNI_COMMAND = ADD ] && exec sleep 60`)
		n.bridge("10-a.conflist", "a", 1, "")
		n.bridge("20-b.conflist", "b", 2, "", `{"type": "slow"}`)
		p := n.pod("web", podnet.Network{}, podnet.Network{Name: "b"})
		began := time.Now()
		_, err := n.SetUpPod(t.Context(), p)
		wants(t, err, "it took longer than 700ms")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > kerneltest.Slow(20*time.Second) {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		n.nothingLeft("web")
		if got := n.links(p.Netns); got != "lo" {
			t.Errorf("the pod has %s", got)
		}
	})
}

// TestCancelledSetup cancels the caller's context during a set-up.
func TestCancelledSetup(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	mark := filepath.Join(t.TempDir(), "reached")
	n.script("slow", `[ $CNI_COMMAND = ADD ] && { : >`+mark+`; exec sleep 60; }`)
	n.bridge("10-a.conflist", "a", 1, "", `{"type": "slow"}`)
	p := n.pod("web")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(mark); err == nil {
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if _, err := n.SetUpPod(ctx, p); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	n.nothingLeft("web")
}

// TestManyPods sets up many pods at once, each on two networks.
func TestManyPods(t *testing.T) {
	both(t, func(t *testing.T, exec func(*podnet.Options)) {
		n := newNode(t, exec)
		n.bridge("10-a.conflist", "a", 1, "")
		n.bridge("20-b.conflist", "b", 2, "")
		const many = 8
		var pods []podnet.Pod
		for i := range many {
			pods = append(pods, n.pod("p"+string(rune('a'+i)), podnet.Network{}, podnet.Network{Name: "b"}))
		}
		got := make(chan netip.Addr, many)
		t.Run("all", func(t *testing.T) {
			for _, p := range pods {
				t.Run(p.Name, func(t *testing.T) {
					t.Parallel()
					s, err := n.SetUpPod(t.Context(), p)
					must(t, err)
					got <- s.IPs()[0]
				})
			}
		})
		seen := map[netip.Addr]bool{}
		close(got)
		for addr := range got {
			seen[addr] = true
		}
		if len(seen) != many {
			t.Errorf("%d pods have %d addresses", many, len(seen))
		}
		if list, err := n.List(); err != nil || len(list) != many {
			t.Errorf("listed %d, %v", len(list), err)
		}
		t.Run("down", func(t *testing.T) {
			for _, p := range pods {
				t.Run(p.Name, func(t *testing.T) {
					t.Parallel()
					must(t, n.TearDownPod(t.Context(), p.ID))
					n.nothingLeft(p.Name)
				})
			}
		})
	})
}

// TestOnePodAtOnce checks that operations on one pod run one after the other, also across processes, which a second
// Manager simulates.
func TestOnePodAtOnce(t *testing.T) {
	t.Parallel()
	n := newNode(t, within)
	n.bridge("10-a.conflist", "a", 1, "")
	p := n.pod("web")
	t.Run("all", func(t *testing.T) {
		for i := range 6 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				m, err := podnet.New(n.options)
				must(t, err)
				if i%2 == 0 {
					_, err = m.SetUpPod(t.Context(), p)
				} else {
					err = m.TearDownPod(t.Context(), p.ID)
				}
				must(t, err)
			})
		}
	})
	must(t, n.TearDownPod(t.Context(), p.ID))
	n.nothingLeft("web")
}

// TestCheckWithoutConfiguration checks that a pod whose network is known nowhere any more is an error, not intact.
func TestCheckWithoutConfiguration(t *testing.T) {
	t.Parallel()
	n := newNode(t, within)
	n.bridge("10-a.conflist", "a", 1, "")
	p := n.pod("web")
	_, err := n.SetUpPod(t.Context(), p)
	must(t, err)
	must(t, n.CheckPod(t.Context(), p.ID))
	must(t, os.Rename(n.conf, n.conf+".off"))
	must(t, os.RemoveAll(n.cache))
	n.editNote(p.ID, func(note map[string]any) {
		for _, part := range note["parts"].([]any) {
			delete(part.(map[string]any), "config")
		}
	})
	n.again()
	if err := n.CheckPod(t.Context(), p.ID); err == nil || !strings.Contains(err.Error(), " of pod "+p.ID+" has no configuration") {
		t.Errorf("got %v", err)
	}
	must(t, os.Rename(n.conf+".off", n.conf))
	n.again()
	must(t, n.TearDownPod(t.Context(), p.ID))
	n.nothingLeft("web")
}
