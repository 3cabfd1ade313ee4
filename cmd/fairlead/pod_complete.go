package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/podnet"
)

const noFiles = cobra.ShellCompDirectiveNoFileComp

// completeNetworks completes the networks of all directories.
func (a *app) completeNetworks(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, dir := range filepath.SplitList(a.confDir()) {
		names = append(names, networkNames(dir)...)
	}
	return names, noFiles
}

// completeNetns completes namespaces, or paths.
func (a *app) completeNetns(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	return fileNames(netnsDir), cobra.ShellCompDirectiveDefault
}

// completePods completes pods that are set up.
func (a *app) completePods(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var ids []string
	for _, f := range fileNames(a.podDir()) {
		if id, ok := strings.CutSuffix(f, ".json"); ok && !strings.HasPrefix(id, ".") {
			ids = append(ids, id)
		}
	}
	return ids, noFiles
}

// completePodNetwork completes POD, then NETWORK.
func (a *app) completePodNetwork(c *cobra.Command, args []string, s string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.completePods(c, args, s)
	case 1:
		return a.completeNetworks(c, args, s)
	}
	return nil, noFiles
}

// completeInterface completes POD, then INTERFACE.
func (a *app) completeInterface(c *cobra.Command, args []string, s string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.completePods(c, args, s)
	case 1:
		m, err := podnet.New(a.podOptions(&podFlags{}, &podObservers{}))
		if err != nil {
			return nil, noFiles
		}
		pod, err := m.PodStatus(args[0])
		if err != nil {
			return nil, noFiles
		}
		var names []string
		for _, n := range pod.Attachments {
			names = append(names, n.IfName)
		}
		return names, noFiles
	}
	return nil, noFiles
}

// printLine prints a value as a line of JSON.
func (a *app) printLine(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.stdout, string(raw))
	return err
}
