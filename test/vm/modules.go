package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// bootModules are what a guest needs to reach the host's files.
func bootModules() []string { return []string{"virtio_pci", "virtiofs", "overlay"} }

// preload are what a test would have the kernel load one by one: a large
// nftables transaction is replayed for each module that is missing, which takes
// half a minute under emulation.
func preload() []string {
	return strings.Fields("tun nft_ct nft_nat nft_masq nft_redir nft_chain_nat nft_fib_inet nft_reject_inet nft_limit nft_log nft_numgen nft_hash nft_compat")
}

// loadOrder lists the files, below a directory as depmod(8) left it, of modules
// and all that they depend on, in the order of loading; built-in ones have none.
func loadOrder(dir string, names []string) ([]string, error) {
	f, err := os.Open(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	deps, err := parseDeps(f)
	if err != nil {
		return nil, err
	}
	builtin, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	var order []string
	for _, name := range names {
		files, ok := deps[name]
		if !ok && !strings.Contains(string(builtin), "/"+name+".ko\n") {
			return nil, fmt.Errorf("the kernel in %s has no module %s", dir, name)
		}
		for _, file := range files {
			if !slices.Contains(order, file) {
				order = append(order, file)
			}
		}
	}
	return order, nil
}

// parseDeps reads modules.dep(5): by a module's name its file, last, and the
// files that have to be loaded before.
func parseDeps(r io.Reader) (map[string][]string, error) {
	out := map[string][]string{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		file, needs, ok := strings.Cut(lines.Text(), ":")
		if !ok {
			return nil, fmt.Errorf("modules.dep: no colon in %q", lines.Text())
		}
		files := strings.Fields(needs)
		slices.Reverse(files)
		out[strings.TrimSuffix(path.Base(file), ".ko")] = append(files, file)
	}
	return out, lines.Err()
}
