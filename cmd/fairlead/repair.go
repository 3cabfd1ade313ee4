package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/repair"
)

const repairLong = `Repair restores what existing attachments lost since they were added, because of a reload of
the firewall, other software or an administrator's mistake: bridges, ports, addresses, routes, rules,
queues, sysctls and nftables elements. The record of an attachment has all its objects, so
repair reads no configuration. It prints each object that it restored, and changes nothing else.

It skips attachments that are being added or removed, and those whose namespace is gone
("fairlead gc --all" removes them). It does not revert what a later plugin of a list, or the
container, may change: a hardware address, the bridge of a link, the table of a route, a route
that the list's final result lacks.

It cannot restore a container's interface (del and add the container again), a route that
conflicts with another one, or an address that another attachment has now. It does not restore an
address whose DHCP lease is lost, because another machine may have it: the daemon does, when the
server assigns the address again. Exit code 4:
something could not be restored, or, with --dry-run, something would be.`

func (a *app) repairCommand() *cobra.Command {
	s, dry := selection{app: a}, false
	c := &cobra.Command{
		Use: "repair", Short: "restore what attachments lost", GroupID: "attach", Long: repairLong,
		Example: `  fairlead repair
  fairlead repair --dry-run              # show what it would restore
  fairlead repair --json | jq -r '.[].restored[].object'
  systemctl enable --now fairlead-repair.timer`,
		Args: want(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return a.repair(c.Context(), &s, dry) },
	}
	dryRunFlag(c, &dry)
	s.flags(c)
	return c
}

func (a *app) repair(ctx context.Context, s *selection, dry bool) error {
	dir := attach.Open(a.getenv(attach.RootVariable))
	records, err := s.records(dir)
	if err != nil {
		return err
	}
	if len(records) == 0 && s.network+s.container != "" {
		return fmt.Errorf("there is no attachment%s\nType: fairlead list", s)
	}
	var out []repair.Report
	bad := false
	runtime := a.runtime(a.pluginPath())
	progress := a.counter("repair")
	for i, rec := range records {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		end := progress(i, len(records))
		r := repair.Attachment(dir, runtime, rec, dry)
		end()
		bad = bad || len(r.Failed) > 0 || r.Error != "" || r.Lease != "" || dry && len(r.Restored) > 0
		out = append(out, r)
		if !a.structured() {
			a.printRepaired(shownName(rec.ContainerID, rec.Netns), r, dry)
		}
	}
	if a.structured() {
		err = a.printData(out)
	} else if len(out) == 0 {
		_, err = fmt.Fprintln(a.stdout, "No attachments.")
	}
	if err == nil && bad {
		return silentError{exitWrong}
	}
	return err
}

func (a *app) printRepaired(name string, r repair.Report, dry bool) {
	who := r.Network + " " + name + " " + r.IfName + ": "
	verb := would(dry, "restore", "restored")
	switch {
	case r.Skipped != "":
		fmt.Fprintln(a.stdout, who+"skipped: "+r.Skipped)
	case len(r.Restored)+len(r.Failed) == 0 && r.Error == "" && r.Lease == "":
		fmt.Fprintln(a.stdout, who+"nothing to do")
	case len(r.Restored) > 0:
		fmt.Fprintf(a.stdout, "%s%s %s\n", who, verb, count(len(r.Restored), "object"))
	default:
		fmt.Fprintln(a.stdout, who+verb+" nothing")
	}
	for _, o := range r.Restored {
		fmt.Fprintf(a.stdout, "  %s: %s (%s)\n", o.Side, o.Object, o.Problem)
	}
	for _, o := range r.Failed {
		fmt.Fprintf(a.stdout, "  cannot restore, %s: %s (%s): %s\n", o.Side, o.Object, o.Problem, o.Error)
	}
	if r.Lease != "" {
		fmt.Fprintln(a.stdout, "  not restored, addresses from DHCP and their routes: "+r.Lease)
	}
	if r.Error != "" {
		fmt.Fprintln(a.stdout, "  "+r.Error)
	}
}
