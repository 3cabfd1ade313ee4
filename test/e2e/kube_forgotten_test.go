package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// endForgotten ends what belongs to no pod that kubelet or containerd know: a
// sandbox that was being made. The agent's pod stays, if there is one.
func (n *kubeNode) endForgotten(t *testing.T) (count int) {
	t.Helper()
	time.Sleep(2 * time.Second) // they may be at it
	for range 3 {
		for _, pid := range n.forgotten(t) {
			_, _ = n.run("kill", "-9", pid) // may have ended meanwhile
			count++
		}
	}
	out := n.shell(t, "ls /run/netns")
	for _, name := range strings.Fields(out) {
		n.shell(t, "ip netns delete "+name)
		count++
	}
	return count
}

// forgotten are the processes of containers, but for those of pods of the system:
// each of these has a shim, which names the sandbox, and all of it is the shim's.
func (n *kubeNode) forgotten(t *testing.T) (pids []string) {
	t.Helper()
	staying := strings.Fields(n.shell(t, `ctr -n k8s.io containers ls -q 'labels."io.kubernetes.pod.namespace"==kube-system'`))
	type process struct{ pid, parent string }
	var own []process
	shims := map[string]bool{}
	for line := range strings.Lines(n.shell(t, "ps -e -o pid=,ppid=,comm=,args=")) {
		words := strings.Fields(line)
		if len(words) < 4 || !slices.Contains([]string{"containerd-shim", "runc", "probe"}, words[2]) {
			continue
		}
		if slices.ContainsFunc(words, func(w string) bool { return slices.Contains(staying, w) }) {
			shims[words[0]] = true
			continue
		}
		own = append(own, process{words[0], words[1]})
	}
	for _, p := range own {
		if !shims[p.parent] {
			pids = append(pids, p.pid)
		}
	}
	return pids
}
