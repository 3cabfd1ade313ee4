package compat

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// proof shows a difference that no transcript shows, because transcripts leave out random values, times, protocols and
// the implementations' own rules.
type proof struct {
	plugins             string             // the list's "plugins"
	show                func(*host) string // is called on a host of each side, with a container a
	reference, fairlead string             // patterns of the whole result
}

// TestProvenDifferences checks what both sides do at each difference that no transcript shows.
func TestProvenDifferences(t *testing.T) {
	installReference(t)
	for _, d := range provenDifferences() {
		t.Run(strings.ReplaceAll(d.what, " ", "-"), func(t *testing.T) {
			t.Parallel()
			for _, s := range []side{{}, {ourPlugins: true}} {
				want := d.proof.reference
				if s.ourPlugins {
					want = d.proof.fairlead
				}
				h := newSideHost(t, s)
				h.write(`{"cniVersion": "1.1.0", "name": "net", "plugins": [` + d.proof.plugins + `]}`)
				h.container("a")
				h.ip("a", "link set lo up")
				if got := d.proof.show(h); !regexp.MustCompile(`^(?:` + want + `)$`).MatchString(got) {
					t.Errorf("%v: %q, want %q", s, got, want)
				}
			}
		})
	}
}

// must runs an operation that must succeed.
func (h *host) must(verb string) {
	h.T.Helper()
	ports := `{"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}`
	if _, err := h.call(call{verb: verb, netns: "a", capArgs: ports}); err != nil {
		h.T.Fatalf("%v: %s: %v", h.side, verb, err)
	}
}

// output returns the output of a shell command in a namespace.
func (h *host) output(name, command string) string {
	h.T.Helper()
	out, err := h.command(nil, "", "nsenter", "--net="+h.Netns[name], "--", "sh", "-c", command)
	if err != nil {
		h.T.Fatalf("%s: %v", command, err)
	}
	return strings.TrimSpace(out)
}

// twice attaches the container twice and returns what a command prints each time.
func twice(name, command string) func(*host) string {
	return func(h *host) string {
		h.must("add")
		first := h.output(name, command)
		h.must("del")
		h.must("add")
		if second := h.output(name, command); second != first {
			return "first " + first + ", then " + second
		}
		return "always " + first
	}
}

// once attaches the container and returns what a command prints.
func once(name, command string) func(*host) string {
	return func(h *host) string { h.must("add"); return h.output(name, command) }
}

// duplicateDetection returns whether an ADD took a second, and whether the container's address has no detection.
func duplicateDetection(h *host) string {
	start := time.Now()
	h.must("add")
	took := time.Since(start)
	nodad := strings.Contains(h.output("a", "ip -6 addr show dev eth0 scope global"), "nodad")
	return fmt.Sprintf("waited %v, nodad %v", took >= time.Second, nodad)
}

// afterFailure returns what an ADD that fails late leaves.
func afterFailure(h *host) string {
	_, err := h.call(call{verb: "add", netns: "a"})
	if err == nil {
		h.T.Fatalf("%v: ADD succeeded", h.side)
	}
	files := (&recorder{host: h}).files("ipam", func(s string) string { return s })
	return fmt.Sprintf("eth0 %v, allocated %v", containsLink(h.snapshot("a"), "eth0"), allocatedLine.MatchString(files))
}

// ipamProcesses returns how many processes an ADD starts for IPAM, when host-local is the side's own program, and when
// it is another program.
func ipamProcesses(h *host) string {
	own := h.executions()
	dir := h.T.TempDir()
	for name, target := range map[string]string{"bridge": h.path(), "host-local": side{}.pluginDir(h.T)} {
		if err := os.Symlink(filepath.Join(target, name), filepath.Join(dir, name)); err != nil {
			h.T.Fatal(err)
		}
	}
	h.must("del")
	h.plugins = dir
	return fmt.Sprintf("%d, %d", own, h.executions())
}

// executions adds the container and returns how often host-local was executed.
func (h *host) executions() int {
	h.T.Helper()
	trace := filepath.Join(h.Dir, "trace")
	wrapped := h.T.TempDir()
	script := "#!/bin/sh\nexec strace -f -qq -e trace=execve -o " + trace + " " + filepath.Join(h.path(), "bridge") + "\n"
	if err := os.WriteFile(filepath.Join(wrapped, "bridge"), []byte(script), 0o755); err != nil {
		h.T.Fatal(err)
	}
	before := h.plugins
	h.plugins = wrapped + ":" + h.path()
	h.must("add")
	h.plugins = before
	raw, err := os.ReadFile(trace)
	if err != nil {
		h.T.Fatal(err)
	}
	return len(regexp.MustCompile(`execve\("[^"]*/host-local"`).FindAll(raw, -1))
}
