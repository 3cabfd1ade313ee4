package main

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/install"
	"github.com/fairlead/fairlead/install/migrate"
	"github.com/fairlead/fairlead/install/needed"
	"github.com/fairlead/fairlead/internal/netconf"
	"github.com/fairlead/fairlead/plugins/delegate"
)

func (a *app) uninstallCommand() *cobra.Command {
	i := installation{app: a}
	c := &cobra.Command{
		Use: "uninstall", Short: "restore the files that install replaced", GroupID: "more",
		Long: "Uninstall removes the files that install created and restores those that it replaced. It keeps\n" +
			"a file that was changed since, and the files that a runtime needs to delete containers: their\n" +
			"network file, and plugins of which this host has no other one. Delete the containers, and type\n" +
			"the command again.\n\n" +
			"Containers keep running. After another plugin has deleted one, run \"fairlead gc --all\" to remove\n" +
			"its rules.",
		Example: "  fairlead uninstall --dry-run\n  fairlead uninstall",
		Args:    want(0, 0),
		RunE:    func(*cobra.Command, []string) error { return i.undo() },
	}
	i.flags(c)
	return c
}

func (i *installation) undo() error {
	dir, err := filepath.Abs(i.binDir)
	if err != nil {
		return err
	}
	place, err := install.Open(dir)
	if err != nil {
		return err
	}
	if !place.Installed() {
		return fmt.Errorf("fairlead install has installed nothing in %s\nFor another directory: fairlead uninstall --bin-dir DIRECTORY", dir)
	}
	keep, stay, err := i.inUse(place)
	if err != nil {
		return err
	}
	done, err := place.Uninstall(keep, i.dry)
	out := installed{Files: done, DryRun: i.dry, Attachments: []migrate.Attachment{}, stay: stay}
	if err != nil {
		return errors.Join(i.printDone(out), err)
	}
	defer i.warnUnusable(done)
	return i.print(out, migration{})
}

// inUse returns the base names of the files that uninstall would remove although a runtime needs them to delete
// attachments, and these attachments.
func (i *installation) inUse(place *install.Place) (keep, stay []string, err error) {
	all, err := place.Uninstall(nil, true)
	if err != nil {
		return nil, nil, err
	}
	records, err := attach.Open(i.runDir()).List("")
	if err != nil {
		fmt.Fprintln(i.stderr, "fairlead: warning: cannot find out whether attachments need the files:", err)
		return nil, nil, nil
	}
	lists, removed := map[string]string{}, removedFiles(all) // lists: by network, the base name of its file
	for _, d := range all {
		if filepath.Ext(d.Path) != ".conflist" {
			continue
		}
		if list, err := netconf.LoadFile(d.Path); err == nil {
			lists[list.Name] = filepath.Base(d.Path)
		}
	}
	plugins, files := map[string]bool{}, map[string]bool{}
	for i, names := range needed.Plugins(records, i.app.confDir()) {
		r := records[i]
		list, needs := lists[r.Network]
		if needs {
			files[list] = true
		}
		for _, name := range names {
			if removed[name] {
				plugins[name], needs = true, true
			}
		}
		if needs {
			stay = append(stay, strings.Join([]string{r.Network, shownName(r.ContainerID, r.Netns), r.IfName}, " "))
		}
	}
	keep = slices.Sorted(maps.Keys(files))
	if len(plugins) > 0 {
		keep = slices.Concat(keep, slices.Sorted(maps.Keys(plugins)), needed.Programs)
	}
	return keep, stay, nil
}

// removedFiles returns the base names of the files that are removed.
func removedFiles(done []install.Done) map[string]bool {
	removed := map[string]bool{}
	for _, d := range done {
		removed[filepath.Base(d.Path)] = d.Action == install.Removed
	}
	return removed
}

// warnUnusable names the lists that runtimes cannot use without the removed plugins.
func (i *installation) warnUnusable(done []install.Done) {
	removed := removedFiles(done)
	files, err := netconf.Files([]string{i.app.confDir()})
	if err != nil {
		return // there are none
	}
	var unusable []string
	for _, file := range files {
		list, err := netconf.LoadFile(file)
		if err != nil || removed[filepath.Base(file)] {
			continue // runtimes cannot use it anyway
		}
		var lack []string
		for _, p := range list.Plugins {
			for _, typ := range []string{p.Network.Type, p.Network.IPAM.Type} {
				if removed[typ] {
					lack = append(lack, typ)
				}
			}
		}
		if len(lack) > 0 {
			unusable = append(unusable, file+" ("+strings.Join(lack, ", ")+")")
		}
	}
	if len(unusable) == 0 {
		return
	}
	next := "Change them."
	if i.dry {
		next = "Before uninstall, change them."
	}
	fmt.Fprintf(i.stderr, "fairlead: warning: without these plugins, runtimes can neither create nor delete containers of these lists:\n  %s\n"+
		"%s For one with %s, type: fairlead fuse --in-place --undo FILE\n", strings.Join(unusable, "\n  "), next, delegate.ChainType)
}
