// Package architecture checks design decisions: imports, sockets, dependencies, doc comments and shells.
package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/fairlead/fairlead"

// forbidden lists the imports that a package may not have, directly or indirectly, and why.
var forbidden = []struct {
	from    string // package path below the module; "/..." includes subpackages
	imports string // prefix
	except  []string
	why     string
}{
	{"cni/...", "golang.org/x/", nil, "other runtimes and plugins use the protocol alone: standard library only"},
	{"cni/...", "github.com/", []string{module + "/cni"}, "the protocol depends on nothing"},
	{"libcni", module, []string{module + "/cni", module + "/libcni"}, "a runtime uses it without our kernel package or plugins, with its own Exec"},
	{"skel", module, []string{module + "/cni", module + "/skel"}, "a hand-written plugin needs no kernel engine"},
	{"ipam", module, []string{module + "/cni", module + "/ipam", module + "/internal/filelock", module + "/internal/bootid", module + "/internal/plainfile", module + "/internal/checksum"}, "address allocation needs neither plugins nor the kernel"},
	{"kernel", module, []string{module + "/kernel", module + "/internal", module + "/cni/rawjson"}, "objects do not depend on plugins, and neither does rawjson, which decodes records"},
	{"kernel/netlink", module, []string{module + "/kernel/netlink"}, "the wire format does not depend on objects"},
	{"kernel/netns", module, []string{module + "/kernel/netns", module + "/kernel/netlink", module + "/internal"}, "namespaces do not depend on objects"},
	{"kernel/packet", module, []string{module + "/kernel/packet", module + "/kernel/netns", module + "/kernel/netlink", module + "/internal"}, "sockets do not depend on objects"},
	{"kernel/nft", module, []string{module + "/kernel/nft", module + "/kernel/netlink", module + "/internal/hwaddr"}, "it encodes and decodes, and sends nothing"},
	{"kernel/nftable", module, []string{module + "/kernel/nftable", module + "/kernel/nft", module + "/kernel/netlink", module + "/internal/hwaddr"}, "a table of its own does not depend on the engine"},
	{"kernel/wireguard", module, []string{module + "/kernel/wireguard", module + "/kernel/netlink"}, "a device does not depend on the engine"},
	{"kernel", module + "/kernel/reconcile", nil, "the reconciler is above the engine"},
	{"kernel", module + "/kernel/inspect", nil, "diagnosis is above the engine"},
	{"kernel/reconcile", module + "/kernel/inspect", nil, "the agent does not diagnose"},
	{"cmd/fairlead-cni", module + "/kernel/reconcile", nil, "only the agent reconciles"},
	{"cmd/fairlead-cni", module + "/kernel/nftable", nil, "only the agent keeps a table of policy"},
	{"cmd/fairlead-cni", module + "/kernel/inspect", nil, "only diagnosis reads everything"},
	{"attach", module, []string{module + "/attach", module + "/cni", module + "/kernel", module + "/internal"}, "many packages read records"},
	{"doctor", module, []string{module + "/doctor", module + "/attach", module + "/cni", module + "/ipam", module + "/kernel", module + "/internal"}, "checks are pure functions of facts: no plugin, no runtime"},
	{"install", module, []string{module + "/install", module + "/internal/filelock"}, "it installs files of any kind"},
	{"install/...", "github.com/spf13/cobra", nil, "other programs use it without our command line"},
	{"internal/netnspath", module, []string{module + "/internal/netnspath", module + "/kernel", module + "/internal", module + "/cni/rawjson"}, "it names namespaces of any kind"},
	{"repair", module + "/agent/store", nil, "it works on hosts without an agent"},
	{"validate", "github.com/spf13/cobra", nil, "the command line calls it, and not the other way around"},
	{"fuse", "github.com/spf13/cobra", nil, "the command line calls it, and not the other way around"},
	{"plan", "github.com/spf13/cobra", nil, "the command line calls it, and not the other way around"},
	{"repair", "github.com/spf13/cobra", nil, "the command line calls it, and not the other way around"},
	{"gc", "github.com/spf13/cobra", nil, "the command line calls it, and not the other way around"},
	{"doctor/gather", "github.com/spf13/cobra", nil, "the command line calls it, and not the other way around"},
	{"podnet/manifest", "github.com/spf13/cobra", nil, "the command line calls it, and not the other way around"},
	{"agent/admin", "github.com/spf13/cobra", nil, "the command line calls it, and not the other way around"},
	{"internal/netconf", "github.com/spf13/cobra", nil, "the command line calls it, and not the other way around"},
	{"internal/builtin", "github.com/spf13/cobra", nil, "the command line calls it, and not the other way around"},
	{"podnet", module, []string{module + "/podnet", module + "/libcni", module + "/cni", module + "/attach", module + "/kernel", module + "/internal"}, "other runtimes use it with their own Exec; it asks the kernel only for names of links"},
	{"podnet", "github.com/", []string{module, "github.com/fsnotify/fsnotify"}, "only its subpackages import libraries for metrics and traces"},
	{"podnet", "go.opentelemetry.io/", nil, "only podnet/tracing knows OpenTelemetry"},
	{"podnet", "net/http", nil, "it serves no HTTP"},
	{"podnet/tracing", "go.opentelemetry.io/otel/sdk", nil, "a library uses only the API; the program chooses where spans go"},
	{"plugin", module + "/plugins", nil, "the SDK does not know its plugins"},
	{"plugin", module + "/libcni", nil, "a plugin is not a runtime"},
	{"plugins/...", module + "/libcni", nil, "a plugin is not a runtime: it calls delegates with cni/invoke"},
	{"cmd/fairlead-cni", "net/http", nil, "it is started thousands of times: no HTTP"},
	{"cmd/fairlead-cni", "github.com/insomniacslk/", nil, "the DHCP daemon is in fairlead; the plugin calls it over a socket (ADR 6)"},
	{"cmd/fairlead-cni", "github.com/ovn-kubernetes/", nil, "it triples the start time of an empty program: fairlead contains the plugin ovs (ADR 7)"},
	{"cmd/fairlead-cni", module + "/plugins/ovs", nil, "it imports libovsdb (ADR 7)"},
	{"cmd/fairlead-cni", "net/rpc", nil, "1.1 ms at every start: the plugin dhcp encodes its messages itself (ADR 6)"},
	{"cmd/fairlead-cni", "encoding/gob", nil, "0.5 ms at every start, with net: internal/leangob instead (ADR 6)"},
	{"cmd/fairlead-cni", "crypto/", nil, "0.17 ms at every start: use internal/leansha512 to hash names"},
	{"cmd/fairlead-cni", "text/template", nil, "reflection at start, and no dead-code elimination"},
	{"cmd/fairlead-cni", "google.golang.org/", nil, "no gRPC in programs that runtimes start"},
	{"cmd/fairlead-cni", "k8s.io/", nil, "no Kubernetes client in programs that runtimes start"},
	{"cmd/fairlead-cni", "github.com/spf13/", nil, "no CLI framework in programs that runtimes start"},
	{"cmd/fairlead-cni", "go.etcd.io/", nil, "only the agent calls the store: a plugin calls the agent"},
	{"cmd/fairlead-cni", module + "/agent/store", nil, "it imports etcd's client and gRPC"},
	{"cmd/fairlead-cni", "golang.zx2c4.com/", nil, "the agent starts WireGuard in user space as a process"},
	{"cmd/fairlead-cni", "github.com/osrg/", nil, "only the agent uses BGP, and it imports gRPC, viper and another netlink library"},
	{"agent/backend", module, []string{module + "/agent/backend", module + "/agent/cluster", module + "/kernel", module + "/internal", module + "/cni/rawjson"}, "pure functions from peers to objects"},
	{"agent/backend", module + "/agent/backend/", nil, "the backends compute objects; running parts (a BGP speaker, a device) are in subpackages"},
	{"agent/backend/wgd", module, []string{module + "/agent/backend/wgd"}, "it runs as its own process, without the store and the kernel engine"},
	{"agent/cluster", module, []string{module + "/agent/cluster"}, "documents and their validation: no store, no kernel"},
	{"agent/store", module, []string{module + "/agent/store", module + "/internal/filelock"}, "it stores keys and values of any kind"},
	{"podnet/request", module, []string{module + "/podnet/request", module + "/cni", module + "/internal"}, "the plugin fairlead-pod reads requests without a runtime"},
	{"podnet/request", "net/http", nil, "the plugin fairlead-pod links it"},
	{"cmd/fairlead-cni", module + "/podnet", []string{module + "/podnet/request"}, "a plugin is not a runtime: it does without file watching, metrics and traces"},
	{"cmd/fairlead-cni", "go.opentelemetry.io/", nil, "no traces in programs that runtimes start"},
	{"cmd/fairlead-cni", "github.com/prometheus/", nil, "no metrics in programs that runtimes start"},
}

func TestImports(t *testing.T) {
	t.Parallel()
	for _, f := range forbidden {
		for _, dep := range goList(t, "-deps", "./"+f.from) {
			if strings.HasPrefix(dep, f.imports) && !slices.ContainsFunc(f.except, func(ok string) bool { return within(dep, ok) }) {
				t.Errorf("%s imports %s: %s", f.from, dep, f.why)
			}
		}
	}
}

// TestOnlyKernelImportsUnix checks that only kernel and its subpackages make system calls with golang.org/x/sys/unix.
func TestOnlyKernelImportsUnix(t *testing.T) {
	t.Parallel()
	for _, line := range goList(t, "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "./...") {
		f := strings.Fields(line)
		for _, imp := range f[1:] {
			if strings.HasPrefix(imp, "golang.org/x/sys/unix") && !within(f[0], module+"/kernel") {
				t.Errorf("%s imports %s: only kernel does", f[0], imp)
			}
		}
	}
}

// TestNetlinkSockets checks that only a few packages below kernel open sockets.
func TestNetlinkSockets(t *testing.T) {
	t.Parallel()
	allowed := map[string]string{
		"kernel/netlink":           "netlink.Dial",
		"kernel/packet":            "DHCP, ICMP",
		"kernel/wireguard":         "a UNIX socket to a process",
		"kernel/kerneltest":        "tests",
		"kernel/kerneltest/router": "packets of tests",
	}
	for _, dir := range goList(t, "-f", "{{.Dir}}", "./kernel/...") {
		rel, err := filepath.Rel(root(t), dir)
		if err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(file, "_test.go") && strings.Contains(string(raw), "unix.Socket(") && allowed[rel] == "" {
				t.Errorf("%s opens a socket", file)
			}
		}
	}
}

// within reports whether path is the package root or below it.
func within(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// TestDependencyList compares the modules in each program with the committed list, so that changes are reviewed.
func TestDependencyList(t *testing.T) {
	t.Parallel()
	for _, cmd := range []string{"fairlead-cni", "fairlead"} {
		have := goList(t, "-deps", "-f", `{{if not .Standard}}{{with .Module}}{{if ne .Path "`+module+`"}}{{.Path}} {{.Version}}{{end}}{{end}}{{end}}`, "./cmd/"+cmd)
		slices.Sort(have)
		want := strings.Join(slices.Compact(have), "\n") + "\n"
		file := filepath.Join(root(t), "docs", "dependencies", cmd+".txt")
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil || string(got) != want {
			t.Errorf("%s (%v) lists\n%s\nthe program has\n%s\n(UPDATE=1 go test ./test/architecture updates the list; docs/dependencies.md gives the reason for each module)", file, err, got, want)
		}
	}
}

// TestDocumented checks that every package and every exported name has a doc comment.
func TestDocumented(t *testing.T) {
	t.Parallel()
	for _, dir := range goList(t, "-f", "{{.Dir}}", "./...") {
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		files := token.NewFileSet()
		documented := map[string]bool{}
		for _, name := range names {
			f, err := parser.ParseFile(files, name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			documented[f.Name.Name] = documented[f.Name.Name] || f.Doc != nil
			if !strings.HasSuffix(name, "_test.go") && f.Name.Name != "main" {
				checkDocComments(t, files, f)
			}
		}
		for name, ok := range documented {
			if !ok && !strings.HasSuffix(name, "_test") {
				t.Errorf("package %s in %s has no doc comment", name, dir)
			}
		}
	}
}

// checkDocComments reports exported names without a doc comment.
func checkDocComments(t *testing.T, files *token.FileSet, f *ast.File) {
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE {
			for _, spec := range g.Specs {
				if s := spec.(*ast.TypeSpec); s.Name.IsExported() && g.Doc == nil && s.Doc == nil {
					t.Errorf("%s: %s has no doc comment", files.Position(s.Pos()), s.Name.Name)
				}
			}
		}
		fn, ok := d.(*ast.FuncDecl)
		if ok && fn.Name.IsExported() && fn.Doc == nil && (fn.Recv == nil || !obvious(fn)) {
			t.Errorf("%s: %s has no doc comment", files.Position(fn.Pos()), fn.Name.Name)
		}
	}
}

// obvious reports whether a method needs no doc comment: its type is unexported, or it implements a common interface.
func obvious(fn *ast.FuncDecl) bool {
	recv := fn.Recv.List[0].Type
	if star, ok := recv.(*ast.StarExpr); ok {
		recv = star.X
	}
	name, ok := recv.(*ast.Ident)
	return ok && !name.IsExported() ||
		slices.Contains([]string{"String", "Error", "Unwrap", "Is", "Side", "Shared"}, fn.Name.Name)
}

// passesWithoutRunning matches the end of a test whose environment variable is not set.
var passesWithoutRunning = regexp.MustCompile(`os\.Getenv\([^)]*\)[^\n]*(\n[^\n]*)? == "" \{\n` + // if os.Getenv("X") == "" {
	`(\s*t\.Logf?\([^\n]*\n)?\s*return *(//[^\n]*)?\n`) // t.Log("..."), return

// TestPassesWithoutRunning checks the pattern by which TestTidy finds such tests.
func TestPassesWithoutRunning(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"\tif os.Getenv(\"X\") == \"\" {\n\t\treturn // make x\n\t}\n":                        true,
		"\tv := os.Getenv(name)\n\tif v == \"\" {\n\t\tt.Log(\"not run\")\n\t\treturn\n\t}\n": true,
		"\tif os.Getenv(\"X\") == \"\" {\n\t\treturn time.Second\n\t}\n":                      false,
		"\tif os.Getenv(\"X\") != \"\" {\n\t\treturn\n\t}\n":                                  false,
	} {
		if got := passesWithoutRunning.MatchString(text); got != want {
			t.Errorf("%v, want %v:\n%s", got, want, text)
		}
	}
}

// ownHelper matches functions that kerneltest has for all tests: Until, Eventually, Within, Diff, Inside and Mask.
var ownHelper = regexp.MustCompile(`(?m)^func (\(\w+ \*?\w+\) )?(eventually|waitFor|soon|until|poll|differ|difference|diff|lineDiff|inside|inNetns|mask|removeVolatile)\(.*$`)

// fixedLimit matches a time limit that does not depend on the machine.
var fixedLimit = regexp.MustCompile(`time\.(Now\(\)\.Add|After)\((\d+ \* )?time\.(Second|Minute)\)`)

// waits reports whether a file's time limits must depend on the machine. kerneltest tests its own measurement.
func waits(path string) bool {
	if strings.Contains(path, "/kernel/kerneltest/") {
		return false
	}
	return strings.HasSuffix(path, "_test.go") || strings.HasSuffix(filepath.Dir(path), "test")
}

// TestTidy checks for notes of open work, long files, skipped tests, and shells.
func TestTidy(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir(root(t), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text := string(raw)
		for _, word := range []string{"TO" + "DO", "FIX" + "ME", "X" + "XX"} {
			if strings.Contains(text, word) {
				t.Errorf("%s has %s", path, word)
			}
		}
		if n := strings.Count(text, "\n"); n > 400 && !strings.HasSuffix(path, "_test.go") {
			t.Errorf("%s has %d lines: split it", path, n)
		}
		// Only kerneltest may skip a test. It records what is missing: a kernel feature, or a request.
		if regexp.MustCompile(`\b[tfb]\.Sk`+`ip(Now|f)?\(`).MatchString(text) && !strings.Contains(path, "kerneltest") {
			t.Errorf("%s skips a test itself: use kerneltest.Needs or kerneltest.OptIn", path)
		}
		if m := passesWithoutRunning.FindString(text); m != "" && strings.HasSuffix(path, "_test.go") {
			t.Errorf("%s passes a test that does not run: use kerneltest.OptIn instead of\n%s", path, m)
		}
		if m := fixedLimit.FindString(text); m != "" && waits(path) {
			t.Errorf("%s has the time limit %s: use kerneltest.Slow, because a busy machine is slower", path, m)
		}
		if m := ownHelper.FindString(text); m != "" && strings.HasSuffix(path, "_test.go") {
			t.Errorf("%s: use kerneltest's function instead of\n%s", path, m)
		}
		// No code runs a shell. portmap's conditions are passed to nft or iptables as arguments.
		if !strings.HasSuffix(path, "_test.go") && (strings.Contains(text, `"sh", "-c"`) || strings.Contains(text, `"/bin/sh"`)) {
			t.Errorf("%s runs a shell", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func goList(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v", strings.Join(args, " "), err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}
