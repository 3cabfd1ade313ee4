package main

import (
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/libcni"
)

// completeAttachment completes NETWORK, then NETNS.
func (a *app) completeAttachment(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return networkNames(a.confDir()), cobra.ShellCompDirectiveNoFileComp
	case 1:
		return fileNames(netnsDir), cobra.ShellCompDirectiveDefault // or a path
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completePlugins completes the types of plugins on CNI_PATH.
func (a *app) completePlugins(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := map[string]bool{}
	for _, dir := range a.pluginPath() {
		for _, n := range fileNames(dir) {
			names[n] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), cobra.ShellCompDirectiveNoFileComp
}

// networkNames are the names of the networks that a directory's files can be
// read for.
func networkNames(dir string) []string {
	names := map[string]bool{}
	lists, _ := libcni.ConfFiles(dir, []string{".conflist"})
	for _, f := range lists {
		if l, err := libcni.ConfListFromFile(f); err == nil {
			names[l.Name] = true
		}
	}
	singles, _ := libcni.ConfFiles(dir, []string{".conf", ".json"})
	for _, f := range singles {
		if c, err := libcni.ConfFromFile(f); err == nil && c.Network.Name != "" {
			names[c.Network.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func fileNames(dir string) (names []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

func join(names []string) string { return strings.Join(names, ", ") }

// isNetns tells whether a path names a network namespace that is there.
func isNetns(path string) bool {
	ns, err := netns.Open(path)
	if err != nil {
		return false
	}
	ns.Close()
	return true
}
