package e2e

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const startPage = "../../docs/start.md"

// blocksFor are the commands of docs/start.md for a client ("": those that
// install), with an image that is there.
func blocksFor(t *testing.T, client string) (script string) {
	t.Helper()
	raw, err := os.ReadFile(startPage)
	if err != nil {
		t.Fatal(err)
	}
	word := "sh"
	if client != "" {
		word += " " + client
	}
	for i, m := range regexp.MustCompile("(?ms)^```"+word+"\n(.*?)^```").FindAllStringSubmatch(string(raw), -1) {
		if client != "" || i == 0 {
			script += strings.ReplaceAll(m[1], "IMAGE", imageName)
		}
	}
	if script == "" {
		t.Fatalf("%s has no block for %q", startPage, client)
	}
	return regexp.MustCompile(`(?m)^make .*\n`).ReplaceAllString(script, "") // built already
}

// TestCommandsOfStart runs what docs/start.md says to people who have a runtime, and
// looks that nothing of it is left.
func TestCommandsOfStart(t *testing.T) {
	t.Parallel()
	p := build(t)
	for name, c := range clients(p) {
		block := strings.ToLower(name)
		switch name {
		case "containerd 1.6":
			block = "containerd"
		case "containerd 2.3":
			continue // its ctr takes the same words
		}
		t.Run(block, func(t *testing.T) {
			t.Parallel()
			followPage(t, c(t), block)
		})
	}
}

func followPage(t *testing.T, c client, block string) {
	removeParents(t)
	binds := c.binds()
	for from, to := range binds {
		if to == "/opt/cni/bin" { // the page installs there
			delete(binds, from)
		}
	}
	h := newHost(t, binds)
	h.shell(t, "rm -rf /etc/cni /opt/cni; cd /mnt/e2e\n"+blocksFor(t, ""))
	c.start(t, h)
	if block == "containerd" {
		h.shell(t, "ctr images import /mnt/e2e/image.tar")
	}
	out := h.shell(t, blocksFor(t, block))
	for _, want := range []string{"my-net", "10.20.0."} {
		if !strings.Contains(out, want) {
			t.Errorf("the commands never show %s:\n%s", want, out)
		}
	}
	eventually(t, 10*time.Second, func() error {
		for _, f := range h.files(t) {
			if strings.Contains(f, "/10.20.0.") || strings.Contains(f, "/run/fairlead/") && strings.Contains(f, "web") {
				return errors.New("the page leaves " + f)
			}
		}
		if left, err := h.run("/mnt/e2e/fairlead", "list", "--json"); err != nil || strings.Contains(left, "my-net") {
			return errors.Join(err, errors.New("fairlead list still shows "+left))
		}
		return nil
	})
	if out, err := h.run("/mnt/e2e/fairlead", "doctor"); err != nil {
		t.Errorf("doctor: %v: %s", err, out)
	}
}

// removeParents takes away, after the host, what runtimes call the parents of
// their cgroups when nobody names one; those that were there stay.
func removeParents(t *testing.T) {
	for _, name := range []string{"default", "libpod_parent", "k8s.io"} {
		for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
			trees, _ := filepath.Glob(strings.TrimSuffix(pattern, "/"))
			for _, tree := range trees {
				path := filepath.Join(tree, name)
				if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
					t.Cleanup(func() {
						for i := 0; i < 20 && removeTree(path) != nil; i++ { // another test may hold it: that removes it, too
							time.Sleep(50 * time.Millisecond)
						}
					})
				}
			}
		}
	}
}
