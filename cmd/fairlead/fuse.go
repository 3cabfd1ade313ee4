package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/fuse"
	"github.com/fairlead/fairlead/internal/userfile"
	"github.com/fairlead/fairlead/plugins/delegate"
)

const fuseLong = `Fuse prints a network list with one plugin, fairlead-chain, in place of its plugins.
Fairlead-chain runs all of them in one process, which is faster with any runtime. The other keys of the
list stay unchanged. Attachments of either list can be checked and removed with the other. A
plugin that is not part of Fairlead still runs as a process. --undo restores the original list.

Fuse validates the list first. Exit code 3: the list is not valid.`

func (a *app) fuseCommand() *cobra.Command {
	f := fuseRun{app: a}
	c := &cobra.Command{
		Use: "fuse FILE", Short: "run the plugins of a list in one process", GroupID: "more", Long: fuseLong,
		Example: `  fairlead fuse /etc/cni/net.d/10-my-network.conflist
  fairlead fuse 10-my-network.conflist --to fused/10-my-network.conflist
  fairlead fuse --in-place /etc/cni/net.d/10-my-network.conflist
  fairlead fuse --in-place --undo /etc/cni/net.d/10-my-network.conflist`,
		Args: want(1, 1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"conflist"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(_ *cobra.Command, args []string) error { return f.run(args[0]) },
	}
	c.Flags().StringVar(&f.to, "to", "", "Write the list to this file instead of printing it.")
	c.Flags().BoolVar(&f.inPlace, "in-place", false, "Replace the file by the list, atomically.")
	c.Flags().BoolVar(&f.undo, "undo", false, "Restore the original list from a fused one.")
	return c
}

// fuseRun is one run of the command.
type fuseRun struct {
	*app
	to            string
	inPlace, undo bool
}

// isUsable returns an error if a runtime that uses the file now could not use the list that replaces it.
func (f *fuseRun) isUsable(file string, list []byte) error {
	if !f.inPlace || f.undo || !bytes.Contains(list, []byte(delegate.ChainType)) {
		return nil
	}
	dirs := f.runtimePluginPath()
	if _, err := invoke.FindInPath(delegate.ChainType, dirs); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%s is unchanged: runtimes do not find the plugin %s in %s\nType first: fairlead install", file, delegate.ChainType, strings.Join(dirs, ", "))
}

func (f *fuseRun) run(file string) error {
	if f.inPlace && f.to != "" {
		return &usageError{"--to and --in-place contradict each other", "Type: fairlead fuse --help"}
	}
	if f.inPlace {
		f.to = file
	}
	list, err := fuse.Read(file, f.pluginPath())
	if err != nil {
		return err
	}
	change := fuse.Fuse
	if f.undo {
		change = fuse.Undo
	}
	out, err := change(list)
	if c, ok := errors.AsType[*cni.ConfigError](err); ok {
		c.File = file
	}
	if err != nil {
		return err
	}
	if f.to == "" {
		_, err := f.stdout.Write(out)
		return err
	}
	if err := f.isUsable(file, out); err != nil {
		return err
	}
	if err := userfile.Replace(f.to, out); err != nil {
		return err
	}
	if f.structured() {
		return f.printData(map[string]any{"command": "fuse", "network": list.Name, "file": f.to})
	}
	f.say("fuse %s: wrote %s", list.Name, f.to)
	return nil
}
