package demo

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/netnspath"
	"github.com/fairlead/fairlead/kernel/netns"
)

// snapshot is the state of a host, one object a line.
type snapshot []string

// hostQuestions returns the commands that show the state of a host.
func hostQuestions() []string {
	return append(containerQuestions(), "tc qdisc show", "nft list ruleset",
		"sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding")
}

func containerQuestions() []string {
	return []string{"ip -o link", "ip -o addr", "ip route show table all", "ip -6 route show table all",
		"ip rule", "ip -6 rule", "ip neigh show nud permanent"}
}

// ask runs commands in a namespace, or in the current one if netns is nil.
func ask(ctx context.Context, netns *netns.Handle, name string, questions []string) (out snapshot, err error) {
	for _, q := range questions {
		answer, err := inNetns(netns, func() ([]byte, error) {
			argv := strings.Fields(q)
			return exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
		})
		if err != nil && !strings.Contains(q, "-6") && !strings.Contains(q, "ipv6") { // IPv6 may be off
			return nil, fmt.Errorf("%s: %w", q, err)
		}
		out = append(out, lines(name+q, answer)...)
	}
	return out, nil
}

// inNetns runs f in a namespace, or in the current one if netns is nil.
func inNetns[T any](netns *netns.Handle, f func() (T, error)) (v T, err error) {
	if netns == nil {
		return f()
	}
	err = netns.Do(func() error { v, err = f(); return err })
	return v, err
}

// lines returns the lines of a command's output, prefixed by the command. It removes lifetimes and counters, which
// change by themselves.
func lines(question string, answer []byte) (out snapshot) {
	volatile := regexp.MustCompile(`(valid_lft|preferred_lft|expires) \S+|packets \d+ bytes \d+`)
	table := ""
	for l := range strings.Lines(string(answer)) {
		l = strings.Join(strings.Fields(volatile.ReplaceAllString(l, "")), " ")
		if strings.HasPrefix(l, "table ") {
			table = strings.TrimSuffix(l, "{")
		}
		if l != "" && l != "}" {
			out = append(out, question+": "+strings.TrimSuffix(table+"| "+l, " |"))
		}
	}
	return out
}

// files lists the files below directories, without those below one directory.
func files(below string, dirs ...string) (out snapshot, err error) {
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if path == below {
				return fs.SkipDir
			}
			if err == nil && !d.IsDir() {
				out = append(out, "file: "+path)
			}
			return nil // a file that is gone by now does not count
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// minus returns the lines that s has more often than o.
func (s snapshot) minus(o snapshot) (out snapshot) {
	have := map[string]int{}
	for _, l := range o {
		have[l]++
	}
	for _, l := range s {
		if have[l]--; have[l] < 0 {
			out = append(out, l)
		}
	}
	return out
}

// machine returns the state of the real host that a demo could change and that other software rarely changes.
func machine(ctx context.Context) (snapshot, error) {
	s, err := ask(ctx, nil, "", []string{"ip -br link", "ip route", "ip rule"})
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	ours := regexp.MustCompile(`^/run$|^/var/lib$|^/(run/netns|run/fairlead|var/lib/cni)`) // other software mounts elsewhere
	for l := range strings.Lines(string(mounts)) {
		if f := strings.Fields(l); len(f) > 4 && ours.MatchString(f[4]) {
			s = append(s, "mounted: "+f[4])
		}
	}
	state, err := files("", netnspath.Dir, "/run/fairlead", "/var/lib/cni")
	slices.Sort(state)
	return append(s, state...), err
}

// machineSame prints whether the machine is unchanged, and the differences.
func (p *printer) machineSame(before, after snapshot) bool {
	gone, come := before.minus(after), after.minus(before)
	if len(gone)+len(come) == 0 {
		p.note("This machine is unchanged: the demo compared links, routes, rules, mounts,\nnamespaces and state files.")
		return true
	}
	p.text("Something changed on this machine during the demo:")
	for _, l := range gone {
		p.text("- " + l)
	}
	for _, l := range come {
		p.text("+ " + l)
	}
	return false
}
