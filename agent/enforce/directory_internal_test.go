package enforce

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

const filePolicy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: NAME, namespace: shop}\nspec: {podSelector: {}}\n"

// followed is a directory with policies, and the Enforcer that follows it.
type followed struct {
	t   *testing.T
	d   *directory
	log strings.Builder
}

func follow(t *testing.T) *followed {
	x := &followed{t: t}
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	x.d = &directory{e: newEnforcer(Options{Node: "n1", Directory: dir, Log: slog.New(slog.NewTextHandler(&x.log, nil))}, nil), have: &policy.World{}}
	return x
}

func (x *followed) write(name string) {
	x.t.Helper()
	must(x.t, os.WriteFile(filepath.Join(x.d.e.o.Directory, "p.yaml"), []byte(strings.Replace(filePolicy, "NAME", name, 1)), 0o600))
}

// look looks until a change is read.
func (x *followed) look() {
	x.d.look()
	x.d.look()
}

// want checks the names of the policies that the compiler has, and the number of messages.
func (x *followed) want(messages int, name string) {
	x.t.Helper()
	x.look()
	got := ""
	for _, p := range x.d.have.Policies {
		got += p.Name
	}
	if lines := strings.Count(x.log.String(), "\n"); got != name || lines != messages {
		x.t.Errorf("policies %q, want %q; %d messages, want %d:\n%s", got, name, lines, messages, &x.log)
	}
}

// TestDirectoryReadAgain checks that files that could not be read for a moment are read when they can be. They do not
// change in between.
func TestDirectoryReadAgain(t *testing.T) {
	t.Parallel()
	x := follow(t)
	x.write("one")
	runtime.LockOSThread() // until the thread ends with the test
	as := func(uid int) {  // of this thread only: root may read the file, and others may not
		_, err := unix.SetfsuidRetUid(uid)
		must(t, err)
	}
	as(65534)
	x.want(1, "")
	x.want(1, "")
	as(0)
	x.want(1, "one")
	x.want(1, "one")
	must(t, os.WriteFile(filepath.Join(x.d.e.o.Directory, "q.yaml"), []byte("kind: ["), 0o600))
	x.want(2, "one")
	x.want(2, "one")
	must(t, os.Remove(filepath.Join(x.d.e.o.Directory, "q.yaml")))
	x.want(2, "one")
}

// TestHalfWrittenFile checks that a file which somebody is writing changes no policy until it is complete.
func TestHalfWrittenFile(t *testing.T) {
	t.Parallel()
	x := follow(t)
	x.write("one")
	x.d.look() // the first files are read at once
	file, err := os.Create(filepath.Join(x.d.e.o.Directory, "p.yaml"))
	must(t, err)
	t.Cleanup(func() { must(t, file.Close()) })
	x.d.look() // an empty file is an error
	for i, text := range []string{strings.Replace(filePolicy, "NAME", "two", 1), "---\n", strings.Replace(filePolicy, "NAME", "three", 1)} {
		_, err := file.WriteString(text)
		must(t, err)
		x.d.look()
		if got := len(x.d.have.Policies); got != 1 || x.d.have.Policies[0].Name != "one" {
			t.Errorf("after part %d of the file: %d policies, want the policy one", i, got)
		}
	}
	x.want(1, "twothree")
}

// TestUnreadablePolicies checks that the agent reports a policy file that it cannot read, until it can.
func TestUnreadablePolicies(t *testing.T) {
	t.Parallel()
	x := follow(t)
	x.d.e.inForce = true
	x.d.e.activate()
	x.d.e.synced(attachmentFiles)
	path := filepath.Join(x.d.e.o.Directory, "q.yaml")
	good := strings.Replace(filePolicy, "NAME", "q", 1)
	for _, text := range []string{good, "kind: [", good, "", good} { // a full disk leaves an empty file
		must(t, os.WriteFile(path, []byte(text), 0o600))
		x.look()
		unreadable(t, x.d.e, "q.yaml", text != good)
	}
	for text, want := range map[string]string{
		"kind: Service":              "",
		"# nothing":                  "",
		"Policy: db":                 "an object has neither a kind nor a policy",
		"kind: NetworkPolcy":         "an object has the kind NetworkPolcy: want NetworkPolicy",
		"kind: clusternetworkpolicy": "want ClusterNetworkPolicy",
	} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		x.look()
		if problem := x.d.e.Problem(); strings.Contains(problem, "cannot read all policies") != (want != "") || !strings.Contains(problem, want) {
			t.Errorf("%s: %q, want %q", text, problem, want)
		}
	}
}

// unreadable checks whether an Enforcer reports a policy that it cannot read.
func unreadable(t *testing.T, e *Enforcer, name string, want bool) {
	t.Helper()
	inForce := e.gauges()[0]
	if problem := e.Problem(); strings.Contains(problem, name) != want || inForce == 1 == want {
		t.Errorf("policies cannot be read: want %v; problem %q, in force: %v", want, problem, inForce)
	}
}

// TestUnreadableDocuments checks that the agent reports policies in the store that it cannot read, until they are valid
// or have gone. Whoever publishes containers cannot cause such a report.
func TestUnreadableDocuments(t *testing.T) {
	t.Parallel()
	e := newEnforcer(Options{Node: "n1", Log: slog.New(slog.DiscardHandler)}, nil)
	e.inForce = true
	e.activate()
	e.synced(attachmentFiles)
	f := newStoreFollower(e)
	const key = "policies/networkpolicy/shop/db"
	bad := store.Entry{Key: key, Value: []byte(`{"kind": "Deployment"}`)}
	good := store.Entry{Key: key, Value: []byte(strings.Replace(filePolicy, "NAME", "db", 1))}
	f.Reset([]store.Entry{bad, {Key: "endpoints/n2/c/eth0", Value: []byte("x")}}, 1)
	unreadable(t, e, "shop/db", true)
	f.Change(store.Batch{Events: []store.Event{{Entry: good}}})
	unreadable(t, e, "shop/db", false)
	f.Change(store.Batch{Events: []store.Event{{Entry: bad}}})
	unreadable(t, e, "shop/db", true)
	f.Reset(nil, 2)
	unreadable(t, e, "shop/db", false)
}

// TestDirectoryEditorLock checks that the lock of an editor, which is a link to no file, keeps no file from being read.
func TestDirectoryEditorLock(t *testing.T) {
	t.Parallel()
	x := follow(t)
	x.write("one")
	must(t, os.Symlink("user@host.1:2", filepath.Join(x.d.e.o.Directory, ".#p.yaml")))
	x.want(0, "one")
}

// TestDirectoryReplacedFile checks that a file is read when another with its size and time takes its place, as a backup
// does.
func TestDirectoryReplacedFile(t *testing.T) {
	t.Parallel()
	x := follow(t)
	path := filepath.Join(x.d.e.o.Directory, "p.yaml")
	at := time.Unix(1_700_000_000, 0)
	for _, name := range []string{"one", "two"} {
		must(t, os.RemoveAll(path))
		x.write(name)
		must(t, os.Chtimes(path, at, at))
		x.want(0, name)
	}
	var before, after syscall.Stat_t
	must(t, syscall.Stat(path, &before))
	kerneltest.Until(t, func() bool { // the clock of files is coarse
		x.write("six")
		must(t, os.Chtimes(path, at, at))
		must(t, syscall.Stat(path, &after))
		return after.Ctim != before.Ctim
	})
	x.want(0, "six")
}
