package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/install"
	"github.com/fairlead/fairlead/plugins"
)

const installLong = `Install puts the plugins where runtimes look for them: fairlead-cni and fairlead, and a
link for each plugin. What stands there, the reference's plugins say, is kept, and
"fairlead uninstall" brings it back. Every file is renamed into its place, so that
containers can be added and removed meanwhile. Installing again updates.

Containers that run under the reference's plugins go on; they are noted as "fairlead
migrate" does. With --network a network of that name is written, first by its file's
name if there is no other: a bridge with masquerade and host ports.`

const (
	networkPrefix = "10-" // a file's place among the others
	stayPause     = time.Minute
)

// installation is one run of install or uninstall.
type installation struct {
	*app
	binDir, confDir string
	from            string
	only            []string
	network         string
	subnets         []string
	fused           bool
	dry, stay       bool
	noMigrate       bool
}

// installed is what install prints.
type installed struct {
	Files       []install.Done `json:"files"`
	Attachments []adoption     `json:"attachments"`
	DryRun      bool           `json:"dryRun"`
}

func (a *app) installCommand() *cobra.Command {
	i := installation{app: a}
	c := &cobra.Command{
		Use: "install", Short: "put the plugins where runtimes look for them", GroupID: "more", Long: installLong,
		Example: "  fairlead install --dry-run\n  fairlead install\n  fairlead install --bin-dir /usr/lib/cni --plugins bridge,portmap,host-local\n" +
			"  fairlead install --network my-network --subnet 10.20.0.0/16 --subnet fd20::/64",
		Args: want(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return i.run(c.Context()) },
	}
	i.flags(c)
	c.Flags().StringVar(&i.from, "from", "", "directory with fairlead and fairlead-cni; default: where this program is")
	c.Flags().StringSliceVar(&i.only, "plugins", nil, "only these plugins, and no others")
	c.Flags().StringVar(&i.network, "network", "", "write a network of this name")
	c.Flags().StringVar(&i.confDir, "conf-dir", "", "directory of the network's file; default: NETCONFPATH")
	c.Flags().StringArrayVar(&i.subnets, "subnet", []string{"10.63.0.0/16"}, "the network's addresses; may be repeated, for IPv6 too")
	c.Flags().BoolVar(&i.fused, "fused", false, "write the network as one plugin: see fairlead fuse")
	c.Flags().BoolVar(&i.noMigrate, "no-migrate", false, "do not note attachments of the reference's plugins")
	c.Flags().BoolVar(&i.stay, "stay", false, "go on until a signal, and put back what is replaced or removed (for a DaemonSet)")
	_ = c.MarkFlagDirname("conf-dir") // it is there
	return c
}

func (a *app) uninstallCommand() *cobra.Command {
	i := installation{app: a}
	c := &cobra.Command{
		Use: "uninstall", Short: "bring back what install replaced", GroupID: "more",
		Long: "Uninstall removes what install put in place and brings back what it replaced. A file\n" +
			"that somebody has changed since stays. Containers go on; what was made for them by\n" +
			"rules of Fairlead goes with \"fairlead gc --all\" once they are deleted.",
		Example: "  fairlead uninstall --dry-run\n  fairlead uninstall",
		Args:    want(0, 0),
		RunE:    func(*cobra.Command, []string) error { return i.undo() },
	}
	i.flags(c)
	return c
}

func (i *installation) flags(c *cobra.Command) {
	c.Flags().StringVar(&i.binDir, "bin-dir", defaultPluginPath, "directory of plugins")
	c.Flags().BoolVarP(&i.dry, "dry-run", "n", false, "say what would be done, and do nothing")
	_ = c.MarkFlagDirname("bin-dir")
}

func (i *installation) run(ctx context.Context) error {
	files, err := i.files()
	if err != nil {
		return err
	}
	place, err := install.Open(i.binDir)
	if err != nil {
		return err
	}
	out := installed{DryRun: i.dry, Attachments: []adoption{}}
	if out.Files, err = place.Install(files, i.dry); err != nil {
		return i.explainInstall(err)
	}
	if !i.noMigrate {
		if out.Attachments, err = i.strangers(); err != nil {
			return err
		}
		if !i.dry {
			i.adopt(ctx, out.Attachments)
		}
	}
	if err := i.print(out, migration{Attachments: out.Attachments, Checked: i.dry}); err != nil || !i.stay || i.dry {
		return err
	}
	return i.guard(ctx, place, files)
}

// guard puts back what others replace, until a signal.
func (i *installation) guard(ctx context.Context, place *install.Place, files []install.File) error {
	tick := time.NewTicker(stayPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		done, err := place.Install(files, false)
		if err != nil {
			fmt.Fprintln(i.stderr, "fairlead:", err)
		}
		for _, d := range done {
			if d.Action != install.Same {
				fmt.Fprintf(i.stderr, "fairlead: %s %s\n", d.Action, d.Path)
			}
		}
	}
}

// files are what to install, programs before the links that lead to them.
func (i *installation) files() (list []install.File, err error) {
	if i.binDir, err = filepath.Abs(i.binDir); err != nil {
		return nil, err
	}
	if i.from == "" {
		self, err := os.Executable()
		if err == nil {
			self, err = filepath.EvalSymlinks(self)
		}
		if err != nil {
			return nil, err
		}
		i.from = filepath.Dir(self)
	}
	for _, name := range []string{"fairlead-cni", "fairlead"} {
		from := filepath.Join(i.from, name)
		if _, err := os.Stat(from); err != nil {
			return nil, fmt.Errorf("%w\nInstall needs both programs in one directory; --from names it", err)
		}
		list = append(list, install.File{Path: filepath.Join(i.binDir, name), From: from, Mode: 0o755})
	}
	names, err := i.names()
	for _, name := range names {
		list = append(list, install.File{Path: filepath.Join(i.binDir, name), Link: programOf(name)})
	}
	if err != nil || i.network == "" {
		return list, err
	}
	conf, err := i.networkFile()
	return append(list, conf), err
}

// names are the plugins to install.
func (i *installation) names() (out []string, err error) {
	for _, p := range plugins.All() {
		out = append(out, p.Name)
	}
	for _, p := range slow() {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	if i.only == nil {
		return out, nil
	}
	for _, name := range i.only {
		if !slices.Contains(out, name) {
			return nil, &usageError{fmt.Sprintf("--plugins: there is no plugin %q", name), "There are: " + join(out)}
		}
	}
	return i.only, nil
}

// programOf is the program that serves a plugin.
func programOf(name string) string {
	for _, p := range slow() {
		if p.Name == name {
			return "fairlead"
		}
	}
	return "fairlead-cni"
}

func (i *installation) explainInstall(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w\nThe directory is root's. Type: sudo fairlead install", err)
	}
	return err
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
		return fmt.Errorf("nothing is installed in %s by fairlead install\nAnother directory: fairlead uninstall --bin-dir DIRECTORY", dir)
	}
	done, err := place.Uninstall(i.dry)
	if err != nil {
		return i.explainInstall(err)
	}
	return i.print(installed{Files: done, DryRun: i.dry, Attachments: []adoption{}}, migration{})
}

func (i *installation) print(out installed, m migration) error {
	var b strings.Builder
	counts := map[string]int{}
	for _, d := range out.Files {
		counts[d.Action]++
		switch {
		case d.Action == install.Left:
			fmt.Fprintf(&b, "left %s: somebody has changed it since\n", d.Path)
		case d.Action != install.Same:
			fmt.Fprintf(&b, "%s %s\n", d.Action, d.Path)
		}
	}
	if n := counts[install.Replaced]; n > 0 {
		fmt.Fprintf(&b, "What was there is kept: fairlead uninstall --bin-dir %s brings it back.\n", i.binDir)
	}
	if counts[install.Same] == len(out.Files) && len(out.Files) > 0 {
		fmt.Fprintf(&b, "All of %d files are in place.\n", len(out.Files))
	}
	if len(m.Attachments) > 0 {
		m.words(&b)
	} else if out.DryRun {
		fmt.Fprintln(&b, "Nothing has been changed.")
	}
	return i.printJSONOr(out, b.String())
}
