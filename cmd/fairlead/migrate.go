package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/install/migrate"
	"github.com/fairlead/fairlead/internal/netconf"
	"github.com/fairlead/fairlead/libcni"
)

const migrateLong = `Migrate is for a host whose containers were attached by the reference plugins
(containernetworking/plugins). It records each existing attachment in the runtimes' cache. Then add
honours the host ports of these attachments, check passes, list, gc and doctor know them, and
del removes what the reference plugins created. Migrate changes no link, address or rule, so
connections continue. "fairlead install" runs it after it has installed the plugins.

With --dry-run it changes nothing. It also reads the configurations in NETCONFPATH, or the named files,
and prints for each plugin and key whether its meaning changes. Exit code 3: a configuration would be
rejected.`

func (a *app) migrateCommand() *cobra.Command {
	dry := false
	c := &cobra.Command{
		Use: "migrate [FILE|DIRECTORY...]", Short: "take over from the reference plugins", GroupID: "more", Long: migrateLong,
		Example: "  fairlead migrate --dry-run\n  fairlead migrate --dry-run /etc/cni/net.d/87-podman-bridge.conflist\n  fairlead migrate --dry-run --json | jq '.lists[].members[].keys[] | select(.verdict != \"same\")'",
		RunE: func(c *cobra.Command, args []string) error {
			if dry {
				return a.previewMigration(args)
			}
			if len(args) > 0 {
				return &usageError{"files are for --dry-run: migrate itself changes no configuration", "Type: fairlead migrate --help"}
			}
			return a.migrate(c.Context())
		},
	}
	dryRunFlag(c, &dry)
	c.Flags().BoolVar(&dry, "check", false, "Old name of --dry-run.")
	_ = c.Flags().MarkHidden("check")
	return c
}

// migration is the output of migrate.
type migration struct {
	Lists       []migrate.List       `json:"lists,omitempty"`
	Attachments []migrate.Attachment `json:"attachments"`
	DryRun      bool                 `json:"checkOnly"`
}

func (a *app) findAttachments() (*migrate.Found, error) {
	return migrate.Find(a.runtime(a.pluginPath()), a.getenv(attach.RootVariable))
}

func (a *app) migrate(ctx context.Context) error {
	found, err := a.findAttachments()
	if err != nil {
		return err
	}
	found.Record(ctx)
	return a.printMigration(migration{Attachments: found.Attachments})
}

func (a *app) previewMigration(args []string) error {
	all := len(args) == 0
	if all {
		args = []string{a.confDir()}
	}
	files, err := netconf.Files(args)
	if _, err := os.Stat(a.confDir()); all && errors.Is(err, os.ErrNotExist) {
		files = nil
	}
	if _, none := errors.AsType[libcni.NoConfigsFoundError](err); all && none {
		err = nil
	}
	if err != nil {
		return a.explain(err, a.confDir())
	}
	lists := migrate.Lists(files, a.pluginPath())
	found, err := a.findAttachments()
	if err != nil {
		return err
	}
	return a.printMigration(migration{DryRun: true, Lists: lists, Attachments: found.Attachments})
}

func (a *app) printMigration(m migration) error {
	if m.Attachments == nil {
		m.Attachments = []migrate.Attachment{}
	}
	var b strings.Builder
	bad := 0
	for _, l := range m.Lists {
		if !l.OK {
			bad++
		}
		listText(&b, l)
	}
	for _, d := range m.Attachments {
		if d.Problem != "" && !m.DryRun {
			bad++
		}
	}
	m.text(&b)
	err := a.printDataOr(m, b.String())
	if err == nil && bad > 0 {
		if m.DryRun {
			return silentError{exitInvalid}
		}
		return silentError{exitFailed}
	}
	return err
}

func listText(b *strings.Builder, l migrate.List) {
	fmt.Fprintln(b, strings.TrimSuffix(l.File+": network "+l.Network, ": network "))
	for _, f := range l.Problems {
		fmt.Fprintf(b, "  rejected: %v\n", f.Error(l.File))
	}
	for _, p := range l.Members {
		if !p.Ours {
			fmt.Fprintf(b, "  %s: not a plugin of Fairlead; it stays as it is\n", p.Type)
			continue
		}
		fmt.Fprintf(b, "  %s\n", p.Type)
		for _, k := range p.Keys {
			fmt.Fprintf(b, "    %-40s %s\n", k.Key+" = "+short(k.Value), cmp.Or(k.Text, "the same"))
		}
	}
}

func (m migration) text(b *strings.Builder) {
	if len(m.Attachments) == 0 {
		fmt.Fprintln(b, "The reference plugins have no attachments here.")
	} else {
		fmt.Fprintf(b, "Attachments of the reference plugins, %s; their connections continue:\n", would(m.DryRun, "be recorded", "recorded"))
	}
	t := table{{"NETWORK", "CONTAINER", "INTERFACE", "ADDRESSES", "HOST PORTS", "PROBLEM"}}
	for _, d := range m.Attachments {
		t = append(t, []string{d.Network, shownName(d.Container, d.Netns), d.IfName, join(d.Addresses), ports(d.Ports), d.Problem})
	}
	if len(t) > 1 {
		_ = t.print(b) // a builder does not fail
	}
	if m.DryRun {
		fmt.Fprintln(b, "Nothing was changed. To switch: fairlead install")
	}
}

// short cuts a value so that it fits into a line.
func short(value string) string {
	if len(value) > 24 {
		return value[:21] + "..."
	}
	return value
}
