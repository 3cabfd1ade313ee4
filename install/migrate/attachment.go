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

// Found is the result of Find.
type Found struct {
	Attachments []Attachment // those without a record

	recorded []Attachment // those with a record that an earlier command wrote, and with host ports
	dir      *attach.Dir
}

// Find finds the attachments in the runtimes' cache that exist. It changes nothing. Root is the directory of runtime
// state; "" is the default.
func Find(runtime *libcni.CNIConfig, root string) (*Found, error) {
	found := &Found{dir: attach.Open(root)}
	if err := found.dir.Err(); err != nil {
		return nil, err
	}
	cached, err := runtime.GetCachedAttachments("")
	if err != nil {
		return nil, err
	}
	for _, c := range cached {
		a := Attachment{Network: c.Network, Container: c.ContainerID, IfName: c.IfName, Netns: c.NetNS, Addresses: []string{}, Ports: []attach.Port{}}
		exists, err := a.examine(found.dir, root, runtime, c)
		if err != nil {
			a.Problem = err.Error()
		}
		switch {
		case exists || err != nil:
			found.Attachments = append(found.Attachments, a)
		case len(a.Ports) > 0:
			found.recorded = append(found.recorded, a)
		}
	}
	return found, nil
}

// examine completes an attachment of the cache. It returns false if the attachment is gone, has a record, or has no
// plugin that this project has, too. Of a record that an earlier command wrote, it sets the host ports.
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
		a.record = have
		for _, p := range have.Parts {
			a.Ports = append(a.Ports, p.Ports...)
		}
		return false, nil
	case !errors.Is(err, os.ErrNotExist):
		return false, err
	}
	for _, ip := range result.IPs {
		a.Addresses = append(a.Addresses, ip.Address.String())
	}
	rt.NetNS, a.record = a.Netns, rec
	return a.addParts(list, rt, result, root)
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

// Record writes the records of the attachments, so that ADD honours their host ports and list, check, gc and doctor know
// them. It sets Problem in those that it cannot record. An earlier command may have been killed between a record and its
// host ports, so Record claims the ports of earlier records again. If it cannot, it adds such an attachment to the others.
func (f *Found) Record(ctx context.Context) {
	for i := range f.Attachments {
		a := &f.Attachments[i]
		if a.Problem != "" {
			continue
		}
		if err := a.write(ctx, f.dir); err != nil {
			a.Problem = err.Error()
		}
	}
	for _, a := range f.recorded {
		if err := a.claim(ctx, f.dir); err != nil {
			a.Problem = err.Error()
			f.Attachments = append(f.Attachments, a)
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
	return a.claim(ctx, dir)
}

// claim claims the host ports of an attachment that has a record.
func (a *Attachment) claim(ctx context.Context, dir *attach.Dir) error {
	unlock, err := dir.Claim(ctx, a.record.Owner(), a.Ports)
	if err != nil {
		return err
	}
	unlock()
	return nil
}
