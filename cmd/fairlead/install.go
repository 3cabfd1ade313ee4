package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/install"
	"github.com/fairlead/fairlead/install/migrate"
	"github.com/fairlead/fairlead/install/network"
	"github.com/fairlead/fairlead/internal/builtin"
)

const installLong = `Install puts fairlead-cni, fairlead and a link for each plugin into the directory where
runtimes search for plugins. It keeps the files that it replaces, such as the reference plugins, and
"fairlead uninstall" restores them. It renames each file into place, so containers can be
added and removed meanwhile. Installing again updates the files.

Containers of the reference plugins keep running; install records them as "fairlead
migrate" does. With --network it also writes a network of that name: a bridge with masquerading, host
ports, bandwidth limits and firewall rules, in 10-NAME.conflist.`

// stayInterval is the time between two checks with --stay.
const stayInterval = time.Minute

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

// installed is the output of install.
type installed struct {
	Files       []install.Done       `json:"files"`
	Attachments []migrate.Attachment `json:"attachments"`
	DryRun      bool                 `json:"dryRun"`

	stay []string // attachments that need files in use
}

func (a *app) installCommand() *cobra.Command {
	i := installation{app: a}
	c := &cobra.Command{
		Use: "install", Short: "install the plugins where runtimes search for them", GroupID: "more", Long: installLong,
		Example: "  fairlead install --dry-run\n  fairlead install\n  fairlead install --bin-dir /usr/lib/cni --plugins bridge,portmap,host-local\n" +
			"  fairlead install --network my-network --subnet 10.20.0.0/16 --subnet fd20::/64",
		Args: want(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			for _, f := range []string{"subnet", "fused", "conf-dir"} {
				if c.Flags().Changed(f) && i.network == "" {
					return &usageError{"--" + f + " needs --network NAME", "Type: fairlead install --help"}
				}
			}
			return i.run(c.Context())
		},
	}
	i.flags(c)
	c.Flags().StringVar(&i.from, "from", "", "Directory with the programs fairlead and fairlead-cni (default: the directory of this program).")
	c.Flags().StringSliceVar(&i.only, "plugins", nil, "Install only these plugins, separated by commas.")
	c.Flags().StringVar(&i.network, "network", "", "Write the configuration of a network of this name.")
	c.Flags().StringVar(&i.confDir, "conf-dir", "", "Directory for the network's configuration (default: NETCONFPATH).")
	c.Flags().StringArrayVar(&i.subnets, "subnet", []string{"10.63.0.0/16"}, "Range of the network's addresses. May be repeated, for IPv6, too.")
	c.Flags().BoolVar(&i.fused, "fused", false, "Write the network with one plugin, as \"fairlead fuse\" does.")
	c.Flags().BoolVar(&i.noMigrate, "no-migrate", false, "Do not record attachments of the reference plugins.")
	c.Flags().BoolVar(&i.stay, "stay", false, "Keep running until a signal, and restore files that others replace or remove, every minute (for a DaemonSet).")
	_ = c.MarkFlagDirname("conf-dir") // the flag exists
	return c
}

func (i *installation) flags(c *cobra.Command) {
	c.Flags().StringVar(&i.binDir, "bin-dir", defaultPluginPath, "Directory where runtimes search for plugins (Podman on Debian: /usr/lib/cni).")
	dryRunFlag(c, &i.dry)
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
	out := installed{DryRun: i.dry, Attachments: []migrate.Attachment{}}
	if out.Files, err = place.Install(files, i.dry); err != nil {
		return errors.Join(i.printDone(out), err)
	}
	if !i.noMigrate {
		found, err := i.findAttachments()
		if err != nil {
			return err
		}
		if !i.dry {
			found.Record(ctx)
		}
		out.Attachments = found.Attachments
	}
	if err := i.print(out, migration{Attachments: out.Attachments, DryRun: i.dry}); err != nil || !i.stay || i.dry {
		return err
	}
	return i.guard(ctx, place, files)
}

// guard restores files that others replace, until a signal.
func (i *installation) guard(ctx context.Context, place *install.Place, files []install.File) error {
	tick := time.NewTicker(stayInterval)
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
				fmt.Fprintf(i.stderr, "fairlead: %s %s\n", describeAction(d.Action, false), d.Path)
			}
		}
	}
}

// files returns the files to install: the programs before the links to them.
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
			return nil, fmt.Errorf("%w\nInstall needs both programs in one directory; name it with --from", err)
		}
		list = append(list, install.File{Path: filepath.Join(i.binDir, name), From: from, Mode: 0o755})
	}
	programs := builtin.Programs()
	names, err := i.names(slices.Sorted(maps.Keys(programs)))
	for _, name := range names {
		f := install.File{Path: filepath.Join(i.binDir, name), Link: programs[name]}
		if isCopied(name) {
			f.Link, f.From, f.Mode = "", filepath.Join(i.from, programs[name]), 0o755
		}
		list = append(list, f)
	}
	if err != nil || i.network == "" {
		return list, err
	}
	conf, err := i.networkFile()
	return append(list, conf), err
}

// isCopied reports whether a plugin is a copy and not a link. The DaemonSets of flannel and of whereabouts write their own
// plugins to these paths. That follows a link, and would overwrite every plugin.
func isCopied(name string) bool { return name == "flannel" || name == "whereabouts" }

// names returns the plugins to install.
func (i *installation) names(all []string) ([]string, error) {
	if i.only == nil {
		return all, nil
	}
	for _, name := range i.only {
		if !slices.Contains(all, name) {
			return nil, &usageError{fmt.Sprintf("--plugins: there is no plugin %q", name), "There are: " + join(all)}
		}
	}
	return i.only, nil
}

// networkFile returns the configuration that --network asks for.
func (i *installation) networkFile() (install.File, error) {
	dir := cmp.Or(i.confDir, i.app.confDir())
	if err := cni.ValidateNetworkName(i.network); err != nil {
		return install.File{}, &usageError{"--network: " + err.Error(), "Type: fairlead install --help"}
	}
	o := network.Options{Name: i.network, Fused: i.fused}
	for _, s := range i.subnets {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return install.File{}, &usageError{fmt.Sprintf("--subnet %s: want an address with its prefix length, like 10.20.0.0/16", s), "Type: fairlead install --help"}
		}
		o.Subnets = append(o.Subnets, p)
	}
	return network.File(dir, o)
}

// printDone prints the completed actions of a command that failed.
func (i *installation) printDone(out installed) error {
	if len(out.Files) == 0 || i.dry {
		return nil
	}
	return i.print(out, migration{})
}

// describeAction returns what was done with a file, or what would be done.
func describeAction(action string, dry bool) string {
	infinitive := map[string]string{install.Created: "create", install.Replaced: "replace", install.Updated: "update", install.Restored: "restore", install.Removed: "remove"}[action]
	return would(dry, infinitive, action)
}

func (i *installation) print(out installed, m migration) error {
	var b strings.Builder
	counts := map[string]int{}
	var inUse []string
	for _, d := range out.Files {
		counts[d.Action]++
		switch {
		case d.Action == install.Left:
			fmt.Fprintf(&b, "%s %s: it was changed since it was installed\n", would(out.DryRun, "keep", "kept"), d.Path)
		case d.Action == install.InUse:
			inUse = append(inUse, d.Path)
		case d.Action != install.Same:
			fmt.Fprintf(&b, "%s %s\n", describeAction(d.Action, out.DryRun), d.Path)
		}
	}
	if len(inUse) > 0 {
		fmt.Fprintf(&b, "%s %d files, which a runtime needs to delete the containers of these attachments:\n  %s\n", would(out.DryRun, "keep", "kept"), len(inUse), strings.Join(out.stay, "\n  "))
	}
	if len(inUse) > 0 && !out.DryRun {
		fmt.Fprintf(&b, "Delete the containers, and type \"fairlead uninstall --bin-dir %s\" again. For containers that are gone, first type \"fairlead gc --all\".\n", i.binDir)
	}
	if n := counts[install.Replaced]; n > 0 && !out.DryRun {
		fmt.Fprintf(&b, "The replaced files are kept: fairlead uninstall --bin-dir %s restores them.\n", i.binDir)
	}
	if counts[install.Same] == len(out.Files) && len(out.Files) > 0 {
		fmt.Fprintf(&b, "All %d files are in place.\n", len(out.Files))
	}
	if len(m.Attachments) > 0 {
		m.text(&b)
	} else if out.DryRun {
		fmt.Fprintln(&b, "Nothing was changed.")
	}
	return i.printDataOr(out, b.String())
}
