package kernel_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
)

// TestCommandProbe checks that an inconclusive probe is an error, so that nothing is created twice or left behind.
func TestCommandProbe(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	dir := t.TempDir()
	for _, tt := range []struct {
		name, script string
		there        bool
		want         string
	}{
		{"there", "exit 0", true, ""},
		{"there, output kept open", "sleep 3 &", true, ""},
		{"no rule", "echo 'iptables: Bad rule (does a matching rule exist in that chain?).' >&2; exit 1", false, ""},
		{"no chain", "echo \"Chain 'X' does not exist\" >&2; exit 2", false, ""},
		{"no socket", "echo 'iptables: Failed to initialize nft: Too many open files' >&2; exit 1", false, "Too many open files"},
		{"no library", "echo 'cannot open shared object file: Input/output error' >&2; exit 2", false, "Input/output error"},
		{"killed", "kill -9 $$", false, "signal: killed"},
	} {
		probe, did := filepath.Join(dir, tt.name+".probe"), filepath.Join(dir, tt.name+".did")
		if err := os.WriteFile(probe, []byte(tt.script+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c := &kernel.Command{Probe: []string{"sh", probe}, Do: []string{"touch", did}, Undo: []string{"rm", did}}
		e, err := kernel.Open(nil, kernel.Options{})
		if err != nil {
			t.Fatal(err)
		}
		err = e.Apply(kernel.Objects{c})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v", tt.name, err)
		}
		_, e1 := os.Stat(did)
		if made := e1 == nil; made != (!tt.there && tt.want == "") {
			t.Errorf("%s: made: %v", tt.name, made)
		}
		// For the "there" commands, rm reports a missing file, like a rule that a concurrent DEL removed.
		if err := e.Remove(kernel.Objects{c}); (err != nil) != (tt.want != "") {
			t.Errorf("%s: remove: %v", tt.name, err)
		}
		e.Close()
	}
}

// TestConcurrentSharedCommand checks that concurrent ADDs create a shared object once.
func TestConcurrentSharedCommand(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	ns, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	file := filepath.Join(t.TempDir(), "rules")
	c := &kernel.Command{
		Probe: []string{"sh", "-c", "test -s " + file + " || exit 2"}, Do: []string{"sh", "-c", "sleep 0.1; echo rule >> " + file}, IsShared: true,
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			err := ns.Do(func() error {
				e, err := kernel.Open(nil, kernel.Options{})
				if err != nil {
					return err
				}
				defer e.Close()
				return e.Apply(kernel.Objects{c})
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got, err := os.ReadFile(file); err != nil || string(got) != "rule\n" {
		t.Errorf("created: %q, %v", got, err)
	}
}

func TestMissingCommand(t *testing.T) {
	t.Parallel()
	e, err := kernel.Open(nil, kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	err = e.Apply(kernel.Objects{&kernel.Command{Probe: []string{"no-such-program", "--probe"}, Do: []string{"no-such-program", "--flag"}, Undo: []string{"true"}}})
	if err == nil || !strings.Contains(err.Error(), "no-such-program is needed for this configuration and is not installed") {
		t.Errorf("got %v", err)
	}
}

// TestSimilarRules creates, compares and removes rules that differ only in the options of a match or a target. Version
// 1.8.9 of ip6tables-legacy takes them for one rule.
func TestSimilarRules(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"iptables", "ip6tables", "iptables-legacy", "ip6tables-legacy"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			kerneltest.Host(t)
			var list kernel.Objects
			for _, rule := range []string{
				"-p tcp --dport 80 -j ACCEPT", "-p tcp --dport 81 -j ACCEPT", "-m conntrack --ctstate DNAT -j ACCEPT",
				"-m conntrack --ctstate ESTABLISHED -j ACCEPT", "-j REJECT", "-p tcp -j REJECT --reject-with tcp-reset", "-p tcp -j REJECT",
				`-m comment --comment fairlead\"n\" -j ACCEPT`, "-m comment --comment fairlead -j ACCEPT",
			} {
				with := func(verb string) []string {
					return append([]string{command, "-w", "-t", "filter", verb, "FORWARD"}, strings.Fields(rule)...)
				}
				list = append(list, &kernel.Command{Probe: with("-C"), Do: with("-A"), Undo: with("-D")})
			}
			e := open(t, "", kernel.Options{})
			for range 2 { // the second time, all rules exist
				if err := e.Apply(list); err != nil {
					t.Fatal(err)
				}
				if d, err := e.Compare(list); err != nil || len(d) > 0 {
					t.Errorf("compare: %v %v", d, err)
				}
				if s := kerneltest.Run(t, command, "-S", "FORWARD"); strings.Count(s, "-A ") != len(list) {
					t.Errorf("want %d rules:\n%s", len(list), s)
				}
			}
			kerneltest.Run(t, command, "-D", "FORWARD", "-p", "tcp", "--dport", "81", "-j", "ACCEPT")
			if d, err := e.Compare(list); err != nil || len(d) != 1 || !strings.Contains(d[0].String(), "--dport 81") {
				t.Errorf("compare without the rule of port 81: %v %v", d, err)
			}
			if err := e.Remove(list); err != nil {
				t.Error(err)
			}
			if s := kerneltest.Run(t, command, "-S", "FORWARD"); strings.Contains(s, "-A ") {
				t.Errorf("left:\n%s", s)
			}
		})
	}
}
