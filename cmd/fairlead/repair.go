package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/plugins/ovs"
)

const repairLong = `Repair makes living attachments what they were when they were added: what a reload
of the firewall, other software or a careless hand took away comes back (bridges,
ports, addresses, routes, rules, queues, sysctls, nftables elements). It says for
each attachment what it restored, one object a line. What is as it was stays
untouched, and so do an attachment that is being added or removed and one whose
namespace is gone (gc --all removes that).

A container's interface that is gone cannot be restored: DEL and ADD the container
again. Exit code 4: something could not be restored, or, with --dry-run, would be.`

func (a *app) repairCommand() *cobra.Command {
	r := &repairRun{app: a}
	c := &cobra.Command{
		Use: "repair", Short: "restore what others took from living attachments", GroupID: "attach", Long: repairLong,
		Example: `  fairlead repair
  fairlead repair --dry-run              # what it would do
  fairlead repair --container web
  systemctl enable --now fairlead-repair.timer`,
		Args: want(0, 0),
		RunE: func(*cobra.Command, []string) error { return r.run() },
	}
	c.Flags().BoolVar(&r.dry, "dry-run", false, "say what would be restored, and change nothing")
	a.selection(c, &r.network, &r.container)
	return c
}

// selection are the flags that choose attachments.
func (a *app) selection(c *cobra.Command, network, container *string) {
	c.Flags().StringVar(network, "network", "", "only those of this network")
	c.Flags().StringVar(container, "container", "", "only those of the container whose ID, or namespace's path, begins or ends so")
	complete := func(c *cobra.Command, _ []string, s string) ([]string, cobra.ShellCompDirective) {
		return a.completeAttachment(c, nil, s)
	}
	_ = c.RegisterFlagCompletionFunc("network", complete)
	_ = c.RegisterFlagCompletionFunc("container", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return a.containerNames(), cobra.ShellCompDirectiveNoFileComp
	})
}

// containerNames are what attachments can be called by.
func (a *app) containerNames() (names []string) {
	records, _ := attach.Open(a.getenv(attach.RootVariable)).List("")
	for _, r := range records {
		names = append(names, look(r).name())
	}
	return names
}

// repairRun is one call of repair.
type repairRun struct {
	*app
	dir                *attach.Dir
	network, container string
	dry                bool
}

// repaired is what became of an attachment, as repair prints it.
type repaired struct {
	Network   string     `json:"network"`
	Container string     `json:"container"`
	IfName    string     `json:"ifname"`
	Restored  []restored `json:"restored"`
	Failed    []restored `json:"failed"`
	Untouched string     `json:"skipped,omitempty"`
	Error     string     `json:"error,omitempty"`

	name string
}

type restored struct {
	Side    string `json:"side"`
	Object  string `json:"object"`
	Problem string `json:"problem"`
	Error   string `json:"error,omitempty"`
}

func (r *repairRun) run() error {
	r.dir = attach.Open(r.getenv(attach.RootVariable))
	records, err := r.dir.List("")
	if err != nil {
		return fmt.Errorf("%w\nThe records of attachments are root's. Type: sudo fairlead repair", err)
	}
	out := []repaired{} // not null in JSON
	bad := false
	for i, rec := range records {
		if !chosen(rec, r.network, r.container) {
			continue
		}
		done := r.working("repair", i, len(records))
		one := r.attachment(rec)
		done()
		bad = bad || len(one.Failed) > 0 || one.Error != "" || r.dry && len(one.Restored) > 0
		out = append(out, one)
		if !r.json {
			r.print(one)
		}
	}
	if r.json {
		err = r.printJSON(out)
	} else if len(out) == 0 {
		_, err = fmt.Fprintln(r.stdout, "No attachments.")
	}
	if err == nil && bad {
		return silentError{exitWrong}
	}
	return err
}

func (r *repairRun) attachment(rec *attach.Record) repaired {
	out := repaired{
		Network: rec.Network, Container: rec.ContainerID, IfName: rec.IfName,
		Restored: []restored{}, Failed: []restored{}, name: look(rec).name(),
	}
	switch s := state(rec); s {
	case stateOK:
	case stateAdding:
		out.Untouched = "is being added"
		return out
	default:
		out.Untouched = s + " (fairlead gc --all removes it)"
		return out
	}
	found, err := r.restore(rec)
	if e, ok := errors.AsType[*cni.Error](err); ok && e.Code == cni.CodeTryAgainLater {
		out.Untouched = "is being added or removed"
		return out
	}
	if err != nil {
		out.Error = err.Error()
	}
	for _, f := range found {
		w := restored{Side: f.Object.Side().String(), Object: f.Object.String(), Problem: strings.Join(f.What, ", ")}
		if f.Err == nil {
			out.Restored = append(out.Restored, w)
			continue
		}
		w.Error = f.Err.Error()
		out.Failed = append(out.Failed, w)
	}
	return out
}

// restore holds the attachment while it works on it, so that no DEL comes between.
func (r *repairRun) restore(rec *attach.Record) ([]kernel.RepairResult, error) {
	if !r.dry {
		held, release, err := r.dir.Hold(rec.Owner())
		if err != nil {
			return nil, err
		}
		defer release()
		rec = held
	}
	list, err := objectsOf(rec)
	if err != nil {
		return nil, err
	}
	var out []kernel.RepairResult
	err = inHostOf(rec, func() error {
		out, err = r.compare(rec, list)
		return err
	})
	return out, err
}

func (r *repairRun) compare(rec *attach.Record, list kernel.Objects) (out []kernel.RepairResult, _ error) {
	e, end, err := engineOf(r.dir, rec)
	if err != nil {
		return nil, err
	}
	defer end()
	if !r.dry {
		return e.Repair(list)
	}
	diffs, err := e.Drift(list)
	for _, d := range diffs {
		out = append(out, kernel.RepairResult{Difference: d})
	}
	return out, err
}

// inHostOf runs f in the namespace that is the host to an attachment: of an isolated
// network it is the network's.
func inHostOf(rec *attach.Record, f func() error) error {
	if rec.Host == "" {
		return f()
	}
	ns, err := netns.Open(rec.Host)
	if err != nil {
		return fmt.Errorf("the network's namespace: %w (the agent makes it: fairlead agent status)", err)
	}
	defer ns.Close()
	return ns.Do(f)
}

// objectsOf are the objects that should stand; of what the reference made, none are known.
func objectsOf(rec *attach.Record) (list kernel.Objects, err error) {
	if rec.Adopted {
		return nil, nil
	}
	for _, p := range rec.Parts {
		part, err := p.Objects.Get()
		if err != nil {
			return nil, err
		}
		list = append(list, part...)
	}
	return list, nil
}

// engineOf opens the namespaces of an attachment that stands.
func engineOf(dir *attach.Dir, rec *attach.Record) (*kernel.Engine, func(), error) {
	ns, err := netns.Open(rec.Netns)
	if err != nil {
		return nil, nil, err
	}
	if !rec.Living() { // another one has taken the path meanwhile
		ns.Close()
		return nil, nil, fmt.Errorf("%s is another namespace by now", rec.Netns)
	}
	e, err := kernel.Open(ns, kernel.Options{Alive: dir.Alive})
	if err != nil {
		ns.Close()
		return nil, nil, err
	}
	sw := ovs.Switch(rec.Network)
	e.UseSwitch(sw)
	return e, func() { e.Close(); sw.Close(); ns.Close() }, nil
}

func (r *repairRun) print(one repaired) {
	who := one.Network + " " + one.name + " " + one.IfName + ": "
	verb := "restored"
	if r.dry {
		verb = "would restore"
	}
	switch {
	case one.Untouched != "":
		fmt.Fprintln(r.stdout, who+"skipped: "+one.Untouched)
	case len(one.Restored)+len(one.Failed) == 0 && one.Error == "":
		fmt.Fprintln(r.stdout, who+"nothing to do")
	case len(one.Restored) > 0:
		fmt.Fprintf(r.stdout, "%s%s %d objects\n", who, verb, len(one.Restored))
	default:
		fmt.Fprintln(r.stdout, who+verb+" nothing")
	}
	for _, o := range one.Restored {
		fmt.Fprintf(r.stdout, "  %s: %s (%s)\n", o.Side, o.Object, o.Problem)
	}
	for _, o := range one.Failed {
		fmt.Fprintf(r.stdout, "  cannot restore, %s: %s (%s): %s\n", o.Side, o.Object, o.Problem, o.Error)
	}
	if one.Error != "" {
		fmt.Fprintln(r.stdout, "  "+one.Error)
	}
}
