package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

const migrateLong = `Migrate is for a host whose containers run under the reference's plugins
(containernetworking/plugins). It notes every attachment that stands, going by the
runtimes' cache, so that ADD refuses host ports that they hold, check passes, and
list, gc and doctor know them; del removes what the reference made. It changes no
link, address or rule: connections go on. "fairlead install" does it after it has put
the plugins in place.

With --check it changes nothing, and reads the configurations of NETCONFPATH (or the
files named) besides: for each plugin and key, whether it means the same.
Exit code 3: a configuration would be refused.`

func (a *app) migrateCommand() *cobra.Command {
	check := false
	c := &cobra.Command{
		Use: "migrate [FILE|DIRECTORY...]", Short: "take over from the reference's plugins", GroupID: "more", Long: migrateLong,
		Example: "  fairlead migrate --check\n  fairlead migrate --check /etc/cni/net.d/87-podman-bridge.conflist\n  fairlead migrate --check --json | jq '.lists[].members[].keys[] | select(.verdict != \"same\")'",
		RunE: func(c *cobra.Command, args []string) error {
			if check {
				return a.migrationCheck(args)
			}
			if len(args) > 0 {
				return &usageError{"files are for --check: to migrate is about attachments", "Type: fairlead migrate --help"}
			}
			return a.migrate(c.Context())
		},
	}
	c.Flags().BoolVar(&check, "check", false, "change nothing: say what would")
	return c
}

// migration is what migrate prints.
type migration struct {
	Lists       []migratedList `json:"lists,omitempty"`
	Attachments []adoption     `json:"attachments"`
	Checked     bool           `json:"checkOnly"`
}

// migratedList is a configuration, and what changes with it.
type migratedList struct {
	report
	Members []migratedPlugin `json:"members"`
}

type migratedPlugin struct {
	Type string        `json:"type"`
	Ours bool          `json:"ours"` // it is a plugin of Fairlead's
	Keys []migratedKey `json:"keys"`
}

func (a *app) migrate(ctx context.Context) error {
	list, err := a.strangers()
	if err != nil {
		return err
	}
	a.adopt(ctx, list)
	return a.printMigration(migration{Attachments: list})
}

func (a *app) migrationCheck(args []string) error {
	if len(args) == 0 {
		args = []string{a.confDir()}
	}
	files, err := confFiles(args)
	if err != nil {
		return a.explain(err, a.confDir())
	}
	m := migration{Checked: true}
	for _, f := range files {
		for _, r := range a.validateFile(f) {
			m.Lists = append(m.Lists, migratedList{r, membersOf(f)})
		}
	}
	if m.Attachments, err = a.strangers(); err != nil {
		return err
	}
	return a.printMigration(m)
}

func (a *app) printMigration(m migration) error {
	if m.Attachments == nil {
		m.Attachments = []adoption{}
	}
	var b strings.Builder
	bad := 0
	for _, l := range m.Lists {
		if !l.OK {
			bad++
		}
		l.words(&b)
	}
	for _, d := range m.Attachments {
		if d.Problem != "" && !m.Checked {
			bad++
		}
	}
	m.words(&b)
	err := a.printJSONOr(m, b.String())
	if err == nil && bad > 0 {
		if m.Checked {
			return silentError{exitInvalid}
		}
		return silentError{exitFailed}
	}
	return err
}

func (l migratedList) words(b *strings.Builder) {
	fmt.Fprintf(b, "%s: network %s\n", l.File, l.Network)
	for _, f := range l.Problems {
		fmt.Fprintf(b, "  refused: %v\n", f.in(l.File))
	}
	for _, p := range l.Members {
		if !p.Ours {
			fmt.Fprintf(b, "  %s: no plugin of Fairlead's: it stays as it is\n", p.Type)
			continue
		}
		fmt.Fprintf(b, "  %s\n", p.Type)
		for _, k := range p.Keys {
			fmt.Fprintf(b, "    %-40s %s\n", k.Key+" = "+short(k.Value), cmp.Or(k.Text, "the same"))
		}
	}
}

func (m migration) words(b *strings.Builder) {
	verb := "noted"
	if m.Checked {
		verb = "would be noted"
	}
	if len(m.Attachments) == 0 {
		fmt.Fprintln(b, "No attachment of the reference's plugins stands.")
	} else {
		fmt.Fprintf(b, "Attachments of the reference's plugins that stand, %s; their connections go on:\n", verb)
	}
	t := table{{"NETWORK", "CONTAINER", "INTERFACE", "ADDRESSES", "HOST PORTS", "PROBLEM"}}
	for _, d := range m.Attachments {
		t = append(t, []string{d.Network, d.name(), d.IfName, join(d.Addresses), ports(d.Ports), d.Problem})
	}
	if len(t) > 1 {
		_ = t.print(b) // a builder does not fail
	}
	if m.Checked {
		fmt.Fprintln(b, "Nothing has been changed. To switch: fairlead install")
	}
}

// short is a value that fits into a line.
func short(value string) string {
	if len(value) > 24 {
		return value[:21] + "..."
	}
	return value
}
