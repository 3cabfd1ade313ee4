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

// bootModules returns the modules that a guest needs to mount the host's files.
func bootModules() []string { return []string{"virtio_pci", "virtiofs", "overlay"} }

// preload returns the modules that tests need. If the kernel loaded them on demand, it would repeat a large nftables
// transaction for each missing module, which takes half a minute under emulation.
func preload() []string {
	return strings.Fields("tun nft_ct nft_nat nft_masq nft_redir nft_chain_nat nft_fib_inet nft_reject_inet nft_limit nft_log nft_numgen nft_hash nft_compat br_netfilter sctp ip_vs ip_vs_rr")
}

// loadOrder returns the files of modules and their dependencies, in the order of loading, from a directory prepared by
// depmod(8). Built-in modules have no file.
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

// parseDeps parses modules.dep(5). It maps a module's name to the files to load, the module's own file last.
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
