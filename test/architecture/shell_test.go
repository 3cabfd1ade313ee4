package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// runsPrograms maps the packages that may start programs to the programs.
var runsPrograms = map[string]string{
	"cni/invoke":       "plugins, by a path below CNI_PATH",
	"kernel":           "nft, iptables and restorecon, without a shell",
	"plugins/chain":    "looks for nft and iptables",
	"internal/demo":    "the demo's tools, in its own network namespaces",
	"internal/lab":     "the hosts of demo-cluster and of tests: unshare, nsenter, ip, mount, etcd, ping, in their own namespaces",
	"cmd/fairlead-cni": "becomes bin/fairlead for \"dhcp daemon\"",
}

// TestNoShell checks that the product never runs a shell, so that no configuration can reach one. Only the packages in
// runsPrograms start programs.
func TestNoShell(t *testing.T) {
	t.Parallel()
	shells := []string{"sh", "bash", "dash", "ash", "zsh", "ksh", "busybox", "env", "eval", "xargs"}
	root := "../.."
	seen := 0
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			if skip := []string{".git", "test", "bench", "bin", "contrib/release", "kernel/kerneltest"}; slices.Contains(skip, filepath.ToSlash(rel)) || strings.HasSuffix(rel, "test") && strings.HasPrefix(rel, "internal/") || rel == "internal/reference" || rel == "internal/built" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		seen++
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(rel))
		for _, i := range f.Imports {
			if i.Path.Value == `"os/exec"` && runsPrograms[dir] == "" {
				t.Errorf("%s starts programs: add it to runsPrograms", rel)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			word, _ := strconv.Unquote(lit.Value)
			if dir == "doctor" && strings.HasPrefix(word, "sh -c ") {
				return true // a command line for the administrator; doctor/harmless.go rejects names that a shell would interpret
			}
			if slices.Contains(shells, filepath.Base(word)) || strings.Contains(word, "sh -c") {
				t.Errorf("%s names a shell: %s", rel, lit.Value)
			}
			return true
		})
		return nil
	})
	if err != nil || seen < 100 {
		t.Fatalf("read only %d files: %v", seen, err)
	}
}
