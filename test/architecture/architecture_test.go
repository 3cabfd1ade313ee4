// Package architecture holds the decisions of the design that a test can hold.
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

// forbidden says which imports a package may not reach, and why.
var forbidden = []struct {
	from    string // package path below the module; "/..." for all below
	imports string // prefix
	but     []string
	why     string
}{
	{"cni/...", "golang.org/x/", nil, "a runtime or plugin of another kind uses the protocol alone: standard library only"},
	{"cni/...", "github.com/", []string{module + "/cni"}, "the protocol depends on nothing"},
	{"libcni", module, []string{module + "/cni", module + "/libcni"}, "a runtime uses it without our kernel or plugins: it takes an Exec"},
	{"skel", module, []string{module + "/cni", module + "/skel"}, "a hand-written plugin needs no kernel engine"},
	{"ipam", module, []string{module + "/cni", module + "/ipam", module + "/internal/filelock"}, "addresses are worked out without any plugin or kernel around"},
	{"kernel", module, []string{module + "/kernel", module + "/internal", module + "/cni/rawjson"}, "objects know nothing of plugins; rawjson, which decodes records, knows nothing of them either"},
	{"kernel/netlink", module, []string{module + "/kernel/netlink"}, "the wire knows no objects"},
	{"kernel/netns", module, []string{module + "/kernel/netns", module + "/kernel/netlink", module + "/internal"}, "a namespace knows no objects"},
	{"kernel/packet", module, []string{module + "/kernel/packet", module + "/kernel/netns", module + "/kernel/netlink", module + "/internal"}, "sockets know no objects"},
	{"kernel/nft", module, []string{module + "/kernel/nft", module + "/kernel/netlink", module + "/internal/hwaddr"}, "it encodes and decodes, and sends nothing"},
	{"kernel/wireguard", module, []string{module + "/kernel/wireguard", module + "/kernel/netlink"}, "a device knows no engine"},
	{"kernel", module + "/kernel/reconcile", nil, "the reconciler is above the engine"},
	{"kernel", module + "/kernel/inspect", nil, "diagnosis is above the engine"},
	{"kernel/reconcile", module + "/kernel/inspect", nil, "the agent does not diagnose"},
	{"cmd/fairlead-cni", module + "/kernel/reconcile", nil, "only the agent reconciles"},
	{"cmd/fairlead-cni", module + "/kernel/inspect", nil, "only diagnosis reads everything"},
	{"attach", module, []string{module + "/attach", module + "/cni", module + "/kernel", module + "/internal"}, "a record is read by many"},
	{"doctor", module, []string{module + "/doctor", module + "/attach", module + "/cni", module + "/ipam", module + "/kernel", module + "/internal"}, "checks are pure functions of facts: no plugin, no runtime"},
	{"install", module, []string{module + "/install"}, "files are files, whatever is in them"},
	{"install/...", "github.com/spf13/cobra", nil, "others use it without our command line"},
	{"internal/netnspath", module, []string{module + "/internal/netnspath", module + "/kernel", module + "/internal", module + "/cni/rawjson"}, "names of namespaces, whatever they are for"},
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
	{"podnet", module, []string{module + "/podnet", module + "/libcni", module + "/cni", module + "/attach", module + "/kernel", module + "/internal"}, "a runtime of another kind uses it: an Exec is passed in; kernel comes with attach alone"},
	{"podnet", "github.com/", []string{module, "github.com/fsnotify/fsnotify"}, "the libraries of metrics and traces are those of its subpackages"},
	{"podnet", "go.opentelemetry.io/", nil, "only podnet/tracing knows OpenTelemetry"},
	{"podnet", "net/http", nil, "it serves nothing"},
	{"podnet/tracing", "go.opentelemetry.io/otel/sdk", nil, "a library uses the API alone; where spans go is the program's choice"},
	{"plugin", module + "/plugins", nil, "the SDK does not know its plugins"},
	{"plugin", module + "/libcni", nil, "a plugin is not a runtime"},
	{"plugins/...", module + "/libcni", nil, "a plugin is not a runtime: delegates go by cni/invoke"},
	{"cmd/fairlead-cni", "net/http", nil, "it is started thousands of times: no HTTP"},
	{"cmd/fairlead-cni", "github.com/insomniacslk/", nil, "the DHCP daemon is in fairlead; the plugin asks it over a socket (ADR 6)"},
	{"cmd/fairlead-cni", "github.com/ovn-kubernetes/", nil, "three times an empty program's start: the plugin ovs is served by fairlead (ADR 7)"},
	{"cmd/fairlead-cni", module + "/plugins/ovs", nil, "it brings libovsdb along (ADR 7)"},
	{"cmd/fairlead-cni", "net/rpc", nil, "1.1 ms at every start: the plugin dhcp speaks its wire by hand (ADR 6)"},
	{"cmd/fairlead-cni", "encoding/gob", nil, "0.5 ms at every start, with net: internal/leangob instead (ADR 6)"},
	{"cmd/fairlead-cni", "crypto/", nil, "0.17 ms at every start: internal/leansha512 where a name is a hash"},
	{"cmd/fairlead-cni", "text/template", nil, "reflection at start, and no dead-code elimination"},
	{"cmd/fairlead-cni", "google.golang.org/", nil, "no gRPC in what runtimes start"},
	{"cmd/fairlead-cni", "k8s.io/", nil, "no Kubernetes client in what runtimes start"},
	{"cmd/fairlead-cni", "github.com/spf13/", nil, "no CLI framework in what runtimes start"},
	{"cmd/fairlead-cni", "go.etcd.io/", nil, "the agent speaks to the store: a plugin asks the agent"},
	{"cmd/fairlead-cni", module + "/agent/store", nil, "it brings etcd's client and gRPC along"},
	{"cmd/fairlead-cni", "golang.zx2c4.com/", nil, "WireGuard in user space is a process of the agent's"},
	{"cmd/fairlead-cni", "github.com/osrg/", nil, "BGP is the agent's; it links gRPC, viper and another netlink"},
	{"agent/backend", module, []string{module + "/agent/backend", module + "/agent/cluster", module + "/kernel", module + "/internal", module + "/cni/rawjson"}, "pure functions from peers to objects"},
	{"agent/backend", module + "/agent/backend/", nil, "what runs (a speaker, a device) is not among what is worked out"},
	{"agent/backend/wgd", module, []string{module + "/agent/backend/wgd"}, "a process of its own: it knows neither store nor kernel engine"},
	{"agent/cluster", module, []string{module + "/agent/cluster"}, "documents and their validation: no store, no kernel"},
	{"agent/store", module, []string{module + "/agent/store", module + "/internal/filelock"}, "keys and values, whatever they mean"},
	{"cmd/fairlead-cni", module + "/podnet", nil, "a plugin is not a runtime, and pays nothing for one: no watching, metrics or traces"},
	{"cmd/fairlead-cni", "go.opentelemetry.io/", nil, "no traces in what runtimes start"},
	{"cmd/fairlead-cni", "github.com/prometheus/", nil, "no metrics in what runtimes start"},
}

func TestImports(t *testing.T) {
	t.Parallel()
	for _, f := range forbidden {
		for _, dep := range goList(t, "-deps", "./"+f.from) {
			if strings.HasPrefix(dep, f.imports) && !slices.ContainsFunc(f.but, func(ok string) bool { return under(dep, ok) }) {
				t.Errorf("%s reaches %s: %s", f.from, dep, f.why)
			}
		}
	}
}

// Only kernel and its subpackages use netlink and write sysctls.
func TestOnlyKernelTouchesTheKernel(t *testing.T) {
	t.Parallel()
	for _, line := range goList(t, "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "./...") {
		f := strings.Fields(line)
		for _, imp := range f[1:] {
			if strings.HasPrefix(imp, "golang.org/x/sys/unix") && !under(f[0], module+"/kernel") {
				t.Errorf("%s imports %s: only kernel does", f[0], imp)
			}
		}
	}
}

// TestNetlinkSockets checks that only these packages open sockets: everything else goes through them.
func TestNetlinkSockets(t *testing.T) {
	t.Parallel()
	opens := map[string]string{
		"kernel/netlink":    "netlink.Dial",
		"kernel/packet":     "DHCP, ICMP",
		"kernel/reconcile":  "a netlink socket that receives events",
		"kernel/wireguard":  "a UNIX socket to a process",
		"kernel/kerneltest": "tests",
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
			if !strings.HasSuffix(file, "_test.go") && strings.Contains(string(raw), "unix.Socket(") && opens[rel] == "" {
				t.Errorf("%s opens a socket", file)
			}
		}
	}
}

func under(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// What is linked into the plugins' binary is committed, so that a change is seen.
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
			t.Errorf("%s (%v) says\n%s\nthe binary has\n%s\n(UPDATE=1 go test ./test/architecture writes it; docs/dependencies.md says why each is there)", file, err, got, want)
		}
	}
}

// Every package says what it is, and every exported name what it means.
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
				undocumented(t, files, f)
			}
		}
		for name, ok := range documented {
			if !ok && !strings.HasSuffix(name, "_test") {
				t.Errorf("package %s in %s has no doc comment", name, dir)
			}
		}
	}
}

func undocumented(t *testing.T, files *token.FileSet, f *ast.File) {
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

// obvious are methods whose interface says what they do.
func obvious(fn *ast.FuncDecl) bool {
	recv := fn.Recv.List[0].Type
	if star, ok := recv.(*ast.StarExpr); ok {
		recv = star.X
	}
	name, ok := recv.(*ast.Ident)
	return ok && !name.IsExported() ||
		slices.Contains([]string{"String", "Error", "Unwrap", "Is", "Side", "Shared"}, fn.Name.Name)
}

// Open work is not left in the code, and files stay readable.
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
		// A test is skipped for what the kernel lacks only: kerneltest.Needs notes it.
		if regexp.MustCompile(`\b[tfb]\.Sk`+`ip(Now|f)?\(`).MatchString(text) && !strings.Contains(path, "kerneltest") {
			t.Errorf("%s skips a test by itself: say what it needs with kerneltest.Needs", path)
		}
		// The one way to a shell is none (conditions go to nft or iptables as arguments).
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
