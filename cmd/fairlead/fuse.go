package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugins/delegate"
)

const fuseLong = `Fuse reads a network list and prints an equal one that has a single plugin,
fairlead-chain, which runs all plugins of the list in one process. Everything else
in the list stays as it is. Any runtime can use it: attachments that were made by the
one are checked and removed by the other. A plugin that is not of this project stays
a process of its own. --undo prints the list that was fused.

The list is validated first. Exit code 3: it is not valid.`

func (a *app) fuseCommand() *cobra.Command {
	f := fuse{app: a}
	c := &cobra.Command{
		Use: "fuse FILE", Short: "make a list run in one process, under any runtime", GroupID: "more", Long: fuseLong,
		Example: `  fairlead fuse /etc/cni/net.d/10-my-network.conflist
  fairlead fuse 10-my-network.conflist -o fused/10-my-network.conflist
  fairlead fuse --in-place /etc/cni/net.d/10-my-network.conflist
  fairlead fuse --in-place --undo /etc/cni/net.d/10-my-network.conflist`,
		Args: want(1, 1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"conflist"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(_ *cobra.Command, args []string) error { return f.run(args[0]) },
	}
	c.Flags().StringVarP(&f.output, "output", "o", "", "write the list to this file instead of printing it")
	c.Flags().BoolVar(&f.inPlace, "in-place", false, "replace the file by the list")
	c.Flags().BoolVar(&f.undo, "undo", false, "take a fused list apart again")
	return c
}

// fuse is one run of the command.
type fuse struct {
	*app
	output        string
	inPlace, undo bool
}

func (f *fuse) run(file string) error {
	if f.inPlace && f.output != "" {
		return &usageError{"--output and --in-place contradict each other", "Type: fairlead fuse --help"}
	}
	if f.inPlace {
		f.output = file
	}
	list, err := f.read(file)
	if err != nil {
		return err
	}
	change := fused
	if f.undo {
		change = parted
	}
	out, err := change(list)
	if c, ok := errors.AsType[*cni.ConfigError](err); ok {
		c.File = file
	}
	if err != nil {
		return err
	}
	return f.write(list, out)
}

// read reads a list that is valid.
func (f *fuse) read(file string) (*libcni.NetworkConfigList, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if json.Valid(data) && !isList(file, data) {
		return nil, fmt.Errorf("%s configures one plugin: there is nothing to fuse; want a list (.conflist)", file)
	}
	var problems []error
	for _, r := range f.validateFile(file) {
		for _, p := range r.Problems {
			problems = append(problems, p.in(r.File))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	list, err := libcni.ConfListFromBytes(data)
	if err == nil && len(list.Plugins) == 0 {
		err = fmt.Errorf("%s has no plugins of its own, only those dropped in beside it: there is nothing to fuse", file)
	}
	return list, err
}

// fused is the list with one plugin in place of all.
func fused(list *libcni.NetworkConfigList) ([]byte, error) {
	var plugins [][]byte
	for i, p := range list.Plugins {
		if p.Network.Type == delegate.ChainType {
			return nil, cni.Invalid(list.Bytes, fmt.Sprintf("plugins[%d].type", i), "the list is fused already; --undo takes it apart")
		}
		plugins = append(plugins, p.Bytes)
	}
	chain, err := delegate.Fuse(plugins)
	if err != nil {
		return nil, err
	}
	return withPlugins(list, [][]byte{chain})
}

// parted is the list with the plugins of its chains in their place.
func parted(list *libcni.NetworkConfigList) ([]byte, error) {
	all, err := parts(list)
	if err != nil {
		return nil, err
	}
	var plugins [][]byte
	for _, p := range all {
		plugins = append(plugins, p.Bytes)
	}
	return withPlugins(list, plugins)
}

// parts are the plugins of a list, those of chains in their chain's place.
func parts(list *libcni.NetworkConfigList) (all []*libcni.NetworkConfig, err error) {
	for _, p := range list.Plugins {
		if p.Network.Type != delegate.ChainType {
			all = append(all, p)
			continue
		}
		members, err := delegate.ChainMembers(p.Bytes)
		if err != nil {
			return nil, err
		}
		for _, m := range members {
			conf, err := libcni.ConfFromBytes(m.Raw)
			if err != nil {
				return nil, err
			}
			all = append(all, conf)
		}
	}
	return all, nil
}

func withPlugins(list *libcni.NetworkConfigList, plugins [][]byte) ([]byte, error) {
	conf, err := rawjson.ParseObject(list.Bytes)
	if err != nil {
		return nil, err
	}
	conf.Set("plugins", append(append([]byte{'['}, bytes.Join(plugins, []byte{','})...), ']'))
	var out bytes.Buffer
	if err := json.Indent(&out, conf.Bytes(), "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

func (f *fuse) write(list *libcni.NetworkConfigList, out []byte) error {
	if f.output == "" {
		_, err := f.stdout.Write(out)
		return err
	}
	if err := replace(f.output, out); err != nil {
		return err
	}
	if f.json {
		return f.printJSON(map[string]any{"command": "fuse", "network": list.Name, "file": f.output})
	}
	f.say("fuse %s: wrote %s", list.Name, f.output)
	return nil
}

// replace writes a file whole or not at all, with the mode that it had. Until it is
// whole its name is none that runtimes look at.
func replace(file string, data []byte) error {
	mode := os.FileMode(0o644)
	if fi, err := os.Stat(file); err == nil {
		mode = fi.Mode().Perm()
	}
	target, err := filepath.EvalSymlinks(file)
	if err != nil {
		target = file // a new one
	}
	tmp, err := os.CreateTemp(filepath.Dir(target), ".fuse-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // gone after the rename
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return os.Rename(tmp.Name(), target)
}
