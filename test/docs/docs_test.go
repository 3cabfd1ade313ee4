// Package docs checks the documentation. It runs the shell commands of each page as one script on a simulated host, and
// checks style, links and the names of tests.
package docs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

const root = "../.."

// prelude returns the script to run before a page's commands, in addition to hostSetup.
func prelude(page string) string {
	const installed = "fairlead install --no-migrate >/dev/null\n"
	switch page {
	case "docs/operating.md", "docs/troubleshooting.md":
		return installed + "ip netns add web; fairlead add my-network web"
	case "docs/switching.md":
		return ""
	}
	return installed
}

// notRun maps prefixes of commands that this test does not run to the reason.
func notRun() map[string]string {
	return map[string]string{
		"make demo":   "test/scenario and cmd/fairlead run the demo",
		"make ":       "a target of the Makefile: only its name is checked",
		"systemctl ":  "no systemd runs here; the units are checked by systemd-analyze",
		"journalctl ": "no systemd runs here",
		"docker ":     "test/docker runs dockerd in hosts of its own",

		"fairlead check docker-": "test/docker checks an endpoint of Docker",
		"sudo ":                  "test/release installs and removes packages in separate root directories",
	}
}

// TestPageCommands runs the commands of each page, and checks that the Makefile targets in them exist.
func TestPageCommands(t *testing.T) {
	bin := programs(t)
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/plugins/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	targets := makeTargets(t)
	commands := 0
	for _, file := range pages {
		page, _ := filepath.Rel(root, file)
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		blocks := shellBlocks(string(raw))
		if len(blocks) == 0 {
			continue
		}
		for _, b := range blocks {
			commands += len(strings.Split(strings.TrimSpace(b.text), "\n"))
			for _, m := range regexp.MustCompile(`(?m)^make ([a-z-]+)`).FindAllStringSubmatch(b.text, -1) {
				if !slices.Contains(targets, m[1]) {
					t.Errorf("%s:%d: the Makefile has no target %s", page, b.line, m[1])
				}
			}
		}
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			runPage(t, bin, page, blocks)
		})
	}
	if commands < 40 {
		t.Errorf("only %d lines of commands on %d pages", commands, len(pages))
	}
}

type block struct {
	text string
	line int
}

// shellBlocks returns the fenced blocks in the language "sh" of a page. Other tests run the blocks in "sh CLIENT".
func shellBlocks(page string) (out []block) {
	for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```").FindAllStringSubmatchIndex(page, -1) {
		out = append(out, block{page[m[2]:m[3]], strings.Count(page[:m[2]], "\n") + 1})
	}
	return out
}

// makeTargets returns the documented targets of the Makefile.
func makeTargets(t *testing.T) (out []string) {
	raw, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):.*##`).FindAllStringSubmatch(string(raw), -1) {
		out = append(out, m[1])
	}
	return out
}

// programs builds Fairlead's programs, which hostSetup installs.
func programs(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	cmd := exec.Command("go", "build", "-o", bin, "./cmd/fairlead", "./cmd/fairlead-cni")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return bin
}

// runPage runs a page's commands as one script, so that exported variables last.
func runPage(t *testing.T, bin, page string, blocks []block) {
	kerneltest.Host(t)
	var script strings.Builder
	script.WriteString("set -euo pipefail\n" + hostSetup + prelude(page) + "\n")
	for _, b := range blocks {
		for i, line := range strings.Split(strings.TrimRight(b.text, "\n"), "\n") {
			if why := reasonNotRun(line); why != "" {
				t.Logf("%s:%d: not run: %s (%s)", page, b.line+i, line, why)
				continue
			}
			fmt.Fprintf(&script, "echo '== %s:%d'\n%s\n", page, b.line+i, line)
			if command, _, _ := strings.Cut(line, "#"); strings.HasSuffix(strings.TrimSpace(command), "&") {
				script.WriteString("sleep 1\n") // the daemon starts
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), kerneltest.Slow(2*time.Minute))
	defer cancel()
	projectDir, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "unshare", "-m", "bash")
	cmd.Stdin = strings.NewReader(script.String())
	cmd.Env = append(os.Environ(), "PATH=/usr/local/bin:"+os.Getenv("PATH"), "WORK="+t.TempDir(), "ROOT="+projectDir, "BIN="+bin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := os.Create(filepath.Join(t.TempDir(), "out")) // not a pipe, because a daemon would keep it open
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // daemons that the page started
	if err != nil {
		output, _ := os.ReadFile(out.Name())
		t.Errorf("%v\n%s", err, output)
	}
}

func reasonNotRun(line string) string {
	for begin, why := range notRun() {
		if strings.HasPrefix(line, begin) {
			return why
		}
	}
	return ""
}

// hostSetup turns a mount namespace into a host with Fairlead in /usr/local/bin and the network my-network. It changes
// to a copy of the project's directory, which is removed at the end.
const hostSetup = `mount --make-rprivate /
mount -t tmpfs run /run
mount -t tmpfs opt /opt
mount -t tmpfs lib /var/lib
mount -t tmpfs work "$WORK"
cd "$WORK"
mkdir etc etc~ project project~ bin bin~ here
mount -t overlay etc -o lowerdir=/etc,upperdir="$WORK"/etc,workdir="$WORK"/etc~ /etc
mount -t overlay bin -o lowerdir=/usr/local/bin,upperdir="$WORK"/bin,workdir="$WORK"/bin~ /usr/local/bin
mount -t overlay project -o lowerdir="$ROOT",upperdir="$WORK"/project,workdir="$WORK"/project~ here
cp "$BIN"/* /usr/local/bin/
rm -rf /etc/cni
mkdir -p /etc/cni/net.d
cp "$ROOT"/examples/10-my-network.conflist /etc/cni/net.d/
cd here
mkdir -p bin/cni
cp "$BIN"/* bin/
fairlead-cni --list | while read -r name; do ln -sf ../fairlead-cni "bin/cni/$name"; done
ip link add up0 type veth peer name up1
ip addr add 198.51.100.2/24 dev up0
ip link set up0 up
ip link set up1 up
ip route add default via 198.51.100.1
`
