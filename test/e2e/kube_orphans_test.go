package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// killOrphans kills processes and removes namespaces of sandboxes that were being created at the kill. Neither kubelet
// nor containerd knows them. The agent's own pod stays.
func (n *kubeNode) killOrphans(t *testing.T) (count int) {
	t.Helper()
	time.Sleep(2 * time.Second) // containerd may still be removing some
	for range 3 {
		for _, pid := range n.orphans(t) {
			_, _ = n.run("kill", "-9", pid) // may have ended already
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

// orphans returns the container processes that do not belong to the agent's or to other system pods. The command line of a shim names
// its sandbox, and its children belong to the same pod.
func (n *kubeNode) orphans(t *testing.T) (pids []string) {
	t.Helper()
	keep := strings.Fields(n.shell(t, `for ns in kube-system fairlead-system; do ctr -n k8s.io containers ls -q "labels.\"io.kubernetes.pod.namespace\"==$ns"; done`))
	type process struct{ pid, parent string }
	var candidates []process
	shims := map[string]bool{}
	for line := range strings.Lines(n.shell(t, "ps -e -o pid=,ppid=,comm=,args=")) {
		words := strings.Fields(line)
		if len(words) < 4 || !slices.Contains([]string{"containerd-shim", "runc", "probe"}, words[2]) {
			continue
		}
		if slices.ContainsFunc(words, func(w string) bool { return slices.Contains(keep, w) }) {
			shims[words[0]] = true
			continue
		}
		candidates = append(candidates, process{words[0], words[1]})
	}
	for _, p := range candidates {
		if !shims[p.parent] {
			pids = append(pids, p.pid)
		}
	}
	return pids
}
