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

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// tutorialCommands returns the commands of a client's tutorial: its blocks in the language "sh CLIENT", with IMAGE
// replaced by the name of an image that the client has.
func tutorialCommands(t *testing.T, client string) (blocks []string) {
	t.Helper()
	page := "../../docs/tutorials/" + client + ".md"
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```sh "+client+"\n(.*?)^```").FindAllStringSubmatch(string(raw), -1) {
		blocks = append(blocks, strings.ReplaceAll(m[1], "IMAGE", imageName))
	}
	if len(blocks) < 2 {
		t.Fatalf("%s has %d blocks for %q", page, len(blocks), client)
	}
	return blocks
}

// TestTutorials runs the commands of each tutorial as they are written, and checks that nothing is left afterwards.
func TestTutorials(t *testing.T) {
	t.Parallel()
	p := build(t)
	for name, c := range clients(p) {
		tutorial := strings.ToLower(name)
		switch name {
		case "containerd 1.6":
			tutorial = "containerd"
		case "containerd 2.3":
			continue // its ctr has the same flags
		}
		t.Run(tutorial, func(t *testing.T) {
			t.Parallel()
			followTutorial(t, c(t), tutorial)
		})
	}
}

func followTutorial(t *testing.T, c client, tutorial string) {
	removeParents(t)
	binds := c.binds()
	for from, to := range binds {
		if to == "/opt/cni/bin" { // the tutorial installs the plugins there
			delete(binds, from)
		}
	}
	h := startHost(t, binds)
	h.shell(t, "rm -rf /etc/cni /opt/cni")
	const inPath = "set -e; export PATH=/mnt/e2e/bin:$PATH; cd /mnt/e2e\n"
	blocks := tutorialCommands(t, tutorial)
	h.shell(t, inPath+blocks[0]) // installs the plugins and writes the network
	c.start(t, h)
	if tutorial == "containerd" {
		h.shell(t, "ctr images import /mnt/e2e/image.tar")
	}
	out := h.shell(t, inPath+strings.Join(blocks[1:], ""))
	for _, want := range []string{"my-net", "10.20.0."} {
		if !strings.Contains(out, want) {
			t.Errorf("the output of the commands does not contain %s:\n%s", want, out)
		}
	}
	kerneltest.Within(t, 10*time.Second, func() error {
		for _, f := range h.files(t) {
			if strings.Contains(f, "/10.20.0.") || strings.Contains(f, "/run/fairlead/") && strings.Contains(f, "web") {
				return errors.New("after the tutorial there is still " + f)
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

// removeParents removes the default parent cgroups of runtimes after the host has ended, unless they existed before.
func removeParents(t *testing.T) {
	for _, name := range []string{"default", "libpod_parent", "k8s.io"} {
		for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
			trees, _ := filepath.Glob(strings.TrimSuffix(pattern, "/"))
			for _, tree := range trees {
				path := filepath.Join(tree, name)
				if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
					t.Cleanup(func() {
						for i := 0; i < 20 && removeTree(path) != nil; i++ { // if another test still uses it, that test removes it
							time.Sleep(50 * time.Millisecond)
						}
					})
				}
			}
		}
	}
}
