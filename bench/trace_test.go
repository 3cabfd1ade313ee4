package main

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/libcni"
)

// traced runs plugins under strace(1) and counts their system calls.
type traced struct {
	invoke.RawExec
	dir   string
	calls map[string]int // system calls by name, and "netlink messages"
}

func (e *traced) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	file := filepath.Join(e.dir, "trace")
	script := filepath.Join(e.dir, "run")
	// The runtime starts a program without arguments, so a script adds strace's.
	text := fmt.Sprintf("#!/bin/sh\nexec strace -f -qq -v -s 65536 -e signal=none -o %s %s\n", file, path)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		return nil, err
	}
	out, err := e.RawExec.ExecPlugin(ctx, script, stdin, env)
	if err != nil {
		return out, err
	}
	return out, e.read(file)
}

func (e *traced) read(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		count(e.calls, lines.Text())
	}
	return lines.Err()
}

const netlinkMessages = "netlink messages"

// count counts the call in a line of strace output.
func count(calls map[string]int, line string) {
	_, text, _ := strings.Cut(line, " ")
	text = strings.TrimSpace(text)
	name, _, ok := strings.Cut(text, "(")
	if !ok || strings.ContainsAny(name, " <") || ofTheRuntime(name) {
		return // a resumed call was counted at its start
	}
	calls[name]++
	if name == "sendmsg" || name == "sendto" {
		calls[netlinkMessages] += strings.Count(text, "nlmsg_len=")
	}
}

// ofTheRuntime reports whether Go's runtime makes this call on its own, in varying numbers: threads, memory, waiting.
func ofTheRuntime(name string) bool {
	return slices.Contains([]string{
		"futex", "nanosleep", "sched_yield", "mmap", "munmap", "madvise", "mprotect", "brk", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn",
		"sigaltstack", "clone", "clone3", "tgkill", "getpid", "gettid", "epoll_pwait", "epoll_create1", "epoll_ctl", "eventfd2", "restart_syscall",
		"set_robust_list", "set_tid_address", "rseq", "arch_prctl", "prlimit64", "sched_getaffinity", "exit", "exit_group", "wait4", "waitid",
	}, name)
}

func TestCount(t *testing.T) {
	t.Parallel()
	calls := map[string]int{}
	for line := range strings.Lines(`7 openat(AT_FDCWD, "/a", O_RDONLY) = 3
8 futex(0x1, FUTEX_WAIT_PRIVATE, 0, NULL <unfinished ...>
7 sendmsg(3, {msg_name=..., [{nlmsg_len=32, nlmsg_type=RTM_NEWLINK}, {nlmsg_len=40, nlmsg_type=RTM_SETLINK}]}, 0) = 72
7 read(0,  <unfinished ...>
8 <... futex resumed>) = 0
7 <... read resumed>"x", 1) = 1
7 +++ exited with 0 +++
`) {
		count(calls, strings.TrimSpace(line))
	}
	want := map[string]int{"openat": 1, "sendmsg": 1, "read": 1, netlinkMessages: 2}
	if !maps.Equal(calls, want) {
		t.Errorf("counted %v, want %v", calls, want)
	}
}

// countCase counts the system calls of a case's operations. It returns the minimum of several rounds.
func countCase(t *testing.T, programs string, c benchCase, fuseIt bool) map[string]map[string]int {
	t.Helper()
	kerneltest.Host(t)
	dir := t.TempDir()
	for _, line := range c.setup {
		kerneltest.Run(t, append([]string{"ip"}, strings.Fields(line)...)...)
	}
	exec := &traced{dir: dir}
	lib := libcni.NewCNIConfigWithCacheDir([]string{filepath.Join(programs, "ours")}, filepath.Join(dir, "cache"), exec)
	conf := strings.ReplaceAll(strings.ReplaceAll(c.list, "$SIDE", "x"), `"type": "host-local", `, `"type": "host-local", "dataDir": "`+dir+`/ipam", `)
	if fuseIt {
		var err error
		if conf, err = fuse(&bench{dir: dir, programs: programs}, conf); err != nil {
			t.Fatal(err)
		}
	}
	list, err := libcni.ConfListFromBytes([]byte(conf))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{c: c}
	rt := &libcni.RuntimeConf{ContainerID: "c1", NetNS: kerneltest.Netns(t), IfName: "eth0", CapabilityArgs: w.job(&side{}, 1, "", "").Runtime}
	least := map[string]map[string]int{}
	for i := range 6 {
		for _, verb := range c.operations() {
			exec.calls = map[string]int{}
			if err := operate(lib, list, rt, verb); err != nil {
				t.Fatalf("%s: %s: %v", c.title(), verb, err)
			}
			if i > 0 { // the first round creates what attachments share
				least[verb] = fewer(least[verb], exec.calls)
			}
		}
	}
	return least
}

func fewer(a, b map[string]int) map[string]int {
	if a == nil || total(b) < total(a) {
		return b
	}
	return a
}

func total(calls map[string]int) (n int) {
	for name, k := range calls {
		if name != netlinkMessages {
			n += k
		}
	}
	return n
}

func operate(lib *libcni.CNIConfig, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf, verb string) error {
	ctx := context.Background()
	switch verb {
	case "ADD":
		_, err := lib.AddNetworkList(ctx, list, rt)
		return err
	case "CHECK":
		return lib.CheckNetworkList(ctx, list, rt)
	}
	return lib.DelNetworkList(ctx, list, rt)
}
