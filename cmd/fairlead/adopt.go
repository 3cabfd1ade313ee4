package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/skel"
)

// adoption is an attachment that the reference's plugins made and that stands.
type adoption struct {
	Network   string        `json:"network"`
	Container string        `json:"container"`
	IfName    string        `json:"ifname"`
	Netns     string        `json:"netns"`
	Addresses []string      `json:"addresses"`
	Ports     []attach.Port `json:"hostPorts"`
	Problem   string        `json:"problem,omitempty"` // why it cannot be noted

	record *attach.Record
}

func (d adoption) name() string {
	return listed{Container: d.Container, Netns: d.Netns}.name()
}

// strangers are the attachments in the runtimes' cache that stand and have no record of
// ours.
func (a *app) strangers() (out []adoption, err error) {
	root := a.getenv(attach.RootVariable)
	dir := attach.Open(root)
	if err := dir.Err(); err != nil {
		return nil, err
	}
	rt := a.runtime(a.pluginPath())
	rt.Warn = func(msg string, err error) { fmt.Fprintf(a.stderr, "fairlead: warning: %s: %v\n", msg, err) }
	cached, err := rt.GetCachedAttachments("")
	if err != nil {
		return nil, fmt.Errorf("%w\nThe cache of results is root's: use sudo", err)
	}
	for _, c := range cached {
		d := adoption{Network: c.Network, Container: c.ContainerID, IfName: c.IfName, Netns: c.NetNS, Addresses: []string{}, Ports: []attach.Port{}}
		stands, err := d.look(dir, root, rt, c)
		if err != nil {
			d.Problem = err.Error()
		}
		if stands || err != nil {
			out = append(out, d)
		}
	}
	return out, nil
}

// look completes one of the cache; false: it is gone, ours, or of no plugin that we have.
func (d *adoption) look(dir *attach.Dir, root string, lib *libcni.CNIConfig, c *libcni.NetworkAttachment) (stands bool, err error) {
	list, err := c.List()
	if err != nil {
		return false, fmt.Errorf("read its configuration in the cache: %w", err)
	}
	rt := &libcni.RuntimeConf{ContainerID: c.ContainerID, NetNS: c.NetNS, IfName: c.IfName, Args: c.CniArgs, CapabilityArgs: c.CapabilityArgs}
	result, err := lib.GetNetworkListCachedResult(list, rt)
	if err != nil || result == nil {
		return false, errors.Join(errors.New("the cache has no result of it"), err)
	}
	for _, i := range result.Interfaces {
		if d.Netns == "" { // runtimes before libcni 1.3 did not note it
			d.Netns = i.Sandbox
		}
	}
	rec := dir.New(d.Network, d.Container, d.IfName, d.Netns)
	if !rec.Living() {
		return false, nil
	}
	if _, err := dir.Read(rec.Owner()); !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	for _, ip := range result.IPs {
		d.Addresses = append(d.Addresses, ip.Address.String())
	}
	rt.NetNS, d.record = d.Netns, rec
	return d.parts(list, rt, result, root)
}

// parts states what the record says of each plugin.
func (d *adoption) parts(list *libcni.NetworkConfigList, rt *libcni.RuntimeConf, result *cni.Result, root string) (some bool, err error) {
	rec := d.record
	rec.Adopted = true
	for _, conf := range list.Plugins {
		p := declared(conf.Network.Type)
		if p == nil {
			continue
		}
		req, err := list.Request(conf, result, rt)
		if err != nil {
			return false, err
		}
		args := &skel.CmdArgs{ContainerID: rec.ContainerID, Netns: rec.Netns, IfName: rec.IfName, Args: invoke.FormatArgs(rt.Args), StdinData: req}
		part, err := p.Adopt(args, plugin.Env{IPAM: plugins.IPAM(), Root: root})
		if err != nil {
			return false, fmt.Errorf("%s: %w", conf.Network.Type, err)
		}
		rec.Parts = append(rec.Parts, part)
		d.Ports = append(d.Ports, part.Ports...)
	}
	return len(rec.Parts) > 0, nil
}

// adopt writes the records, so that host ports are honoured and list, check, gc and
// doctor know the attachments.
func (a *app) adopt(ctx context.Context, list []adoption) {
	dir := attach.Open(a.getenv(attach.RootVariable))
	for i := range list {
		d := &list[i]
		if d.Problem != "" {
			continue
		}
		if err := d.note(ctx, dir); err != nil {
			d.Problem = err.Error()
		}
	}
}

func (d *adoption) note(ctx context.Context, dir *attach.Dir) error {
	place, err := dir.Reserve(d.record.Owner())
	if err != nil {
		return err
	}
	err = dir.Create(d.record, place)
	if errors.Is(err, os.ErrExist) {
		return nil // it was added again meanwhile, by ours
	}
	if err != nil {
		return err
	}
	defer d.record.Unlock()
	unlock, err := dir.Claim(ctx, d.record.Owner(), d.Ports)
	if err != nil {
		return err
	}
	unlock()
	return nil
}
