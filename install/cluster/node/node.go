// Package node removes Fairlead from one node of a Kubernetes cluster, while pods run on it.
//
// A runtime needs a network configuration list and its plugins to delete a pod; containerd deletes no pod without a
// list. So a node with attachments keeps the plugins that they use, and the list under another name: see Retired. The
// next Remove after the pods are gone removes both.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/gc"
	"github.com/fairlead/fairlead/install"
	"github.com/fairlead/fairlead/install/needed"
	"github.com/fairlead/fairlead/internal/bootid"
	"github.com/fairlead/fairlead/plugins/chain"
	"github.com/fairlead/fairlead/plugins/delegate"
)

// Retired is the name of the list that stays on a node with attachments. It is the last one in the directory, so a
// runtime prefers any other list. Its version has the operation STATUS, which fails without the agent, so the node is
// not Ready. ADD fails, too, because the agent's files are gone, and DEL works.
const Retired = "zz-fairlead-uninstalled.conflist"

// statusVersion is the first version of the specification with STATUS.
const statusVersion = "1.1.0"

// Options say what to remove.
type Options struct {
	Node     string
	List     string // path of the list that the agent wrote
	BinDir   string // where fairlead install put the plugins
	Lib, Run string // directories of state: see package local
	Collect  func(context.Context) (*gc.Report, error)
	Patience time.Duration // for which to wait until the agent has ended

	// HandOver keeps routes and tunnels, because flanneld, which runs again, uses them. It has a list of its own, too.
	HandOver bool
}

// Report is the result of Remove.
type Report struct {
	Node        string   `json:"node"`
	Attachments []string `json:"attachments"` // that use what was kept: NETWORK CONTAINER IFNAME
	Removed     []string `json:"removed"`
	Restored    []string `json:"restored"`
	Kept        []string `json:"kept"`
	Objects     int      `json:"objects"` // removed from the kernel
	Errors      []string `json:"errors"`
}

// NewReport returns the report of a node on which nothing was done.
func NewReport(name string) *Report {
	return &Report{Node: name, Attachments: []string{}, Removed: []string{}, Restored: []string{}, Kept: []string{}, Errors: []string{}}
}

// Remove removes Fairlead from this node. It goes on after errors, and reports them.
func Remove(ctx context.Context, o Options) *Report {
	r := NewReport(o.Node)
	if err := r.kernel(ctx, o); err != nil {
		r.fail(err)
		return r // an agent runs: it would create everything again
	}
	if collected, err := o.Collect(ctx); err != nil {
		r.fail(fmt.Errorf("remove the objects of deleted pods: %w", err))
	} else {
		r.Errors = append(r.Errors, collected.Errors...)
	}
	records, err := attach.Open(o.Run).List("")
	if err != nil {
		r.fail(fmt.Errorf("list the attachments: %w", err))
		return r // which plugins are in use is unknown
	}
	pods, err := podsOf(o)
	if err != nil {
		r.fail(err)
		return r
	}
	records = append(records, pods...)
	list, err := r.retire(o, records)
	if err != nil {
		r.fail(err)
		return r
	}
	for _, x := range records {
		if x.Network == list.name() || list == nil {
			r.Attachments = append(r.Attachments, strings.Join([]string{x.Network, x.ContainerID, x.IfName}, " "))
		}
	}
	slices.Sort(r.Attachments)
	r.Attachments = slices.Compact(r.Attachments)
	r.files(o, inUse(records, list, filepath.Dir(o.List)))
	return r
}

// podsOf returns the pods that fairlead-pod attached since the last boot, as attachments to the network of the agent's list.
// A pod may have replaced its default network: then no attachment of its own has that network.
func podsOf(o Options) (out []*attach.Record, _ error) {
	boot, err := bootid.Read()
	if err != nil {
		return nil, err
	}
	state := podstate.Open(local.Open(o.Lib, o.Run))
	keys, err := state.Pods()
	for _, k := range keys {
		p, err := state.Pod(k.ContainerID, k.IfName)
		if errors.Is(err, os.ErrNotExist) {
			continue // a DEL was faster
		}
		if err != nil {
			return nil, err
		}
		if p.Boot != boot {
			continue
		}
		r := &attach.Record{Network: p.Network, ContainerID: p.ContainerID, IfName: p.IfName}
		for _, a := range p.Attachments {
			for _, name := range needed.TypesIn(a.Config) {
				r.Parts = append(r.Parts, attach.Part{Plugin: name})
			}
		}
		out = append(out, r)
	}
	return out, err
}

func (r *Report) fail(err error) { r.Errors = append(r.Errors, err.Error()) }

// kernel removes the agent's objects once the agent has ended.
func (r *Report) kernel(ctx context.Context, o Options) error {
	run := o.Run
	if run == "" {
		run = attach.DefaultRoot
	}
	limited, cancel := context.WithTimeout(ctx, o.Patience)
	defer cancel()
	for {
		did, err := agent.RemoveObjects(&config.Config{}, run, o.HandOver)
		if err == nil {
			r.Objects = did.Removed
			for _, err := range did.Errors {
				r.fail(err)
			}
			return nil
		}
		select {
		case <-limited.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

// retire removes the agent's list. If attachments use it, it stays as Retired. Without a list, it returns nil.
func (r *Report) retire(o Options, records []*attach.Record) (list conflist, err error) {
	retired := filepath.Join(filepath.Dir(o.List), Retired)
	list, err = read(o.List)
	if errors.Is(err, os.ErrNotExist) {
		list, err = read(retired) // of an earlier Remove
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, r.forget(o)
	}
	if err != nil {
		return nil, err
	}
	if !o.HandOver && slices.ContainsFunc(records, func(x *attach.Record) bool { return x.Network == list.name() }) {
		list["cniVersion"] = statusVersion
		delete(list, "cniVersions")
		raw, err := json.MarshalIndent(list, "", "  ")
		if err != nil {
			return nil, err
		}
		if err := local.Replace(retired, append(raw, '\n'), 0o644); err != nil {
			return nil, err
		}
		r.Kept = append(r.Kept, retired)
	} else {
		r.remove(retired)
	}
	r.remove(o.List)
	return list, r.forget(o)
}

// conflist is a network configuration list.
type conflist map[string]any

func (l conflist) name() string {
	name, _ := l["name"].(string)
	return name
}

func read(path string) (list conflist, err error) {
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return list, nil
}

// remove removes a file that may be absent.
func (r *Report) remove(path string) {
	switch err := os.Remove(path); {
	case err == nil:
		r.Removed = append(r.Removed, path)
	case !errors.Is(err, os.ErrNotExist):
		r.fail(err)
	}
}

// forget removes the files by which plugins know the networks of the cluster, and the agent's copy of the store. The
// addresses that containers have stay.
func (r *Report) forget(o Options) error {
	dir := local.Open(o.Lib, o.Run)
	names, err := dir.Networks()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := dir.Remove(name); err != nil {
			r.fail(err)
		}
	}
	r.remove(filepath.Join(dir.Root(), "snapshot"))
	r.remove(filepath.Join(dir.Root(), agent.WrittenList))
	return nil
}

// inUse returns the names of the files that attachments need for their deletion: besides those of needed.Plugins, the
// plugins of the agent's list, which may have changed since, loopback, which a runtime calls for every pod, and fairlead, with
// which an administrator removes the rest.
func inUse(records []*attach.Record, agents conflist, dir string) []string {
	if len(records) == 0 {
		return nil
	}
	return slices.Concat(slices.Concat(needed.Plugins(records, dir)...), needed.Types(agents), needed.Programs, []string{"loopback", delegate.ChainType, delegate.PodType, delegate.NetworkType, chain.PolicyType})
}

// files restores the plugins that fairlead install replaced, and removes its own, except those in use.
func (r *Report) files(o Options, keep []string) {
	place, err := install.Open(o.BinDir)
	if err != nil {
		r.fail(err)
		return
	}
	done, err := place.Uninstall(keep, false)
	if err != nil {
		r.fail(err)
	}
	for _, d := range done {
		switch d.Action {
		case install.Removed:
			r.Removed = append(r.Removed, d.Path)
		case install.Restored:
			r.Restored = append(r.Restored, d.Path)
		default:
			r.Kept = append(r.Kept, d.Path)
		}
	}
}
