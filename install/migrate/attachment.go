// Package migrate takes over attachments and configurations of the reference plugins (containernetworking/plugins).
package migrate

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/internal/builtin"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/skel"
)

// Attachment is an existing attachment that the reference plugins created.
type Attachment struct {
	Network   string        `json:"network"`
	Container string        `json:"container"`
	IfName    string        `json:"ifname"`
	Netns     string        `json:"netns"`
	Addresses []string      `json:"addresses"`
	Ports     []attach.Port `json:"hostPorts"`
	Problem   string        `json:"problem,omitempty"` // why it cannot be recorded

	record *attach.Record
}

// Find returns the attachments in the runtimes' cache that exist and that have no record. Root is the directory of
// runtime state; "" is the default.
func Find(runtime *libcni.CNIConfig, root string) (out []Attachment, err error) {
	dir := attach.Open(root)
	if err := dir.Err(); err != nil {
		return nil, err
	}
	cached, err := runtime.GetCachedAttachments("")
	if err != nil {
		return nil, fmt.Errorf("%w\nOnly root can read the cache of results: use sudo", err)
	}
	for _, c := range cached {
		a := Attachment{Network: c.Network, Container: c.ContainerID, IfName: c.IfName, Netns: c.NetNS, Addresses: []string{}, Ports: []attach.Port{}}
		exists, err := a.examine(dir, root, runtime, c)
		if err != nil {
			a.Problem = err.Error()
		}
		if exists || err != nil {
			out = append(out, a)
		}
	}
	return out, nil
}

// examine completes an attachment of the cache. It returns false if the attachment is gone, has a record, or has no
// plugin that this project has, too.
func (a *Attachment) examine(dir *attach.Dir, root string, runtime *libcni.CNIConfig, c *libcni.NetworkAttachment) (exists bool, err error) {
	list, err := c.List()
	if err != nil {
		return false, fmt.Errorf("read its configuration in the cache: %w", err)
	}
	rt := &libcni.RuntimeConf{ContainerID: c.ContainerID, NetNS: c.NetNS, IfName: c.IfName, Args: c.CniArgs, CapabilityArgs: c.CapabilityArgs}
	result, err := runtime.GetNetworkListCachedResult(list, rt)
	if err != nil || result == nil {
		return false, errors.Join(errors.New("the cache has no result of it"), err)
	}
	for _, i := range result.Interfaces {
		if a.Netns == "" { // runtimes before libcni 1.3 do not save it
			a.Netns = i.Sandbox
		}
	}
	rec := dir.New(a.Network, a.Container, a.IfName, a.Netns)
	if !rec.HasNetns() {
		return false, nil
	}
	switch have, err := dir.Read(rec.Owner()); {
	case err == nil && have.Adopted:
		return false, claimAgain(dir, have)
	case !errors.Is(err, os.ErrNotExist):
		return false, err
	}
	for _, ip := range result.IPs {
		a.Addresses = append(a.Addresses, ip.Address.String())
	}
	rt.NetNS, a.record = a.Netns, rec
	return a.addParts(list, rt, result, root)
}

// claimAgain claims the host ports in a record: an earlier command may have been killed between the record and the claims.
func claimAgain(dir *attach.Dir, rec *attach.Record) error {
	var ports []attach.Port
	for _, p := range rec.Parts {
		ports = append(ports, p.Ports...)
	}
	if len(ports) == 0 {
		return nil
	}
	unlock, err := dir.Claim(context.Background(), rec.Owner(), ports)
	if err == nil {
		unlock()
	}
	return err
}

// addParts adds a part to the record for each plugin, and reports whether there is one.
func (a *Attachment) addParts(list *libcni.NetworkConfigList, rt *libcni.RuntimeConf, result *cni.Result, root string) (bool, error) {
	rec := a.record
	rec.Adopted = true
	for _, conf := range list.Plugins {
		p := builtin.Find(conf.Network.Type)
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
		a.Ports = append(a.Ports, part.Ports...)
	}
	return len(rec.Parts) > 0, nil
}

// Record writes the records of attachments, so that ADD honours their host ports and list, check, gc and doctor know
// them. It sets Problem in those that it cannot record.
func Record(ctx context.Context, list []Attachment, root string) {
	dir := attach.Open(root)
	for i := range list {
		if list[i].Problem != "" {
			continue
		}
		if err := list[i].write(ctx, dir); err != nil {
			list[i].Problem = err.Error()
		}
	}
}

func (a *Attachment) write(ctx context.Context, dir *attach.Dir) error {
	reservation, err := dir.Reserve(a.record.Owner())
	if err != nil {
		return err
	}
	err = dir.Create(a.record, reservation)
	if errors.Is(err, os.ErrExist) {
		return nil // our plugins have added it again since Find
	}
	if err != nil {
		return err
	}
	defer a.record.Unlock()
	unlock, err := dir.Claim(ctx, a.record.Owner(), a.Ports)
	if err != nil {
		return err
	}
	unlock()
	return nil
}
