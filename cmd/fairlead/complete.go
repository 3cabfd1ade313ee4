package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/internal/netconf"
	"github.com/fairlead/fairlead/internal/netnspath"
	"github.com/fairlead/fairlead/podnet"
)

const noFiles = cobra.ShellCompDirectiveNoFileComp

// completeAttachment completes NETWORK, then NETNS. Both may be paths.
func (a *app) completeAttachment(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		if strings.Contains(typed, "/") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return netconf.Names(a.confDir()), noFiles
	case 1:
		return fileNames(netnspath.Dir), cobra.ShellCompDirectiveDefault
	}
	return nil, noFiles
}

// completePlugins completes the types of the plugins on CNI_PATH.
func (a *app) completePlugins(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	names := map[string]bool{}
	for _, dir := range a.pluginPath() {
		for _, n := range fileNames(dir) {
			names[n] = true
		}
	}
	delete(names, "fairlead") // programs next to the plugins
	delete(names, "fairlead-cni")
	return slices.Sorted(maps.Keys(names)), noFiles
}

// completeNetworks completes the networks of all directories.
func (a *app) completeNetworks(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, dir := range filepath.SplitList(a.confDir()) {
		names = append(names, netconf.Names(dir)...)
	}
	return names, noFiles
}

// completeNetns completes a namespace.
func (a *app) completeNetns(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	return fileNames(netnspath.Dir), cobra.ShellCompDirectiveDefault
}

// completeContainers completes the containers that have an attachment.
func (a *app) completeContainers(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	records, _ := attach.Open(a.getenv(attach.RootVariable)).List("")
	for _, r := range records {
		names = append(names, shownName(r.ContainerID, r.Netns))
	}
	slices.Sort(names)
	return slices.Compact(names), noFiles
}

// completePods completes pods that are set up and not among the arguments.
func (a *app) completePods(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return slices.DeleteFunc(a.podIDs(), func(id string) bool { return slices.Contains(args, id) }), noFiles
}

// podIDs returns the IDs of the pods that have a note.
func (a *app) podIDs() (ids []string) {
	for _, f := range fileNames(a.podDir()) {
		if id, ok := strings.CutSuffix(f, ".json"); ok && !strings.HasPrefix(id, ".") {
			ids = append(ids, id)
		}
	}
	return ids
}

// completePodNetwork completes POD, then NETWORK.
func (a *app) completePodNetwork(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.completePods(c, args, typed)
	case 1:
		return a.completeNetworks(c, args, typed)
	}
	return nil, noFiles
}

// completeInterface completes POD, then INTERFACE.
func (a *app) completeInterface(c *cobra.Command, args []string, typed string) (names []string, _ cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.completePods(c, args, typed)
	case 1:
		m, err := podnet.New(a.podOptions(&podFlags{}, nil))
		if err != nil {
			return nil, noFiles
		}
		pod, err := m.PodStatus(args[0])
		if err != nil {
			return nil, noFiles
		}
		for _, n := range pod.Attachments {
			names = append(names, n.IfName)
		}
	}
	return names, noFiles
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
