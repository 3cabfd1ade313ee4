package docker

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/gc"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/libcni"
)

// detach removes an endpoint's attachment, if there is one.
func (d *Driver) detach(ctx context.Context, e *endpoint, n *network) error {
	d.noteMove(e, n) // the link may have a new name by now
	record, err := d.records.Read(e.owner(n))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	path := d.hostPath()
	if record != nil {
		path = d.netnsOf(record)
	}
	list, err := n.removal(e, record)
	if err != nil {
		return err
	}
	return errors.Join(d.cni.DelNetworkList(ctx, list, d.runtimeConf(e.owner(n), path)), d.removeReturned(e, n))
}

// detachByRecord removes an endpoint's attachment if the file of its network is lost.
func (d *Driver) detachByRecord(ctx context.Context, e *endpoint) error {
	all, err := d.records.List("")
	errs := []error{err}
	for _, r := range all {
		if r.ContainerID == e.ID {
			o := gc.Options{Runtime: d.cni, StateDir: d.o.RunDir, LibDir: d.o.LibDir}
			errs = append(errs, gc.RemoveAttachment(ctx, o, r.Owner(), d.netnsOf(r)))
		}
	}
	return errors.Join(errs...)
}

// removal returns the plugins of an attachment, which are those of the network and portmap, if it was published.
func (n *network) removal(e *endpoint, record *attach.Record) (*libcni.NetworkConfigList, error) {
	list, err := n.list(e.Asked)
	if err != nil || record == nil || record.Last(portmap) < 0 {
		return list, err
	}
	plugins := []json.RawMessage{}
	for _, p := range list.Plugins {
		plugins = append(plugins, p.Bytes)
	}
	plugins = append(plugins, json.RawMessage(`{"type":"`+portmap+`","capabilities":{"portMappings":true}}`))
	raw, err := json.Marshal(map[string]any{"cniVersion": cni.Current, "name": n.Name, "plugins": plugins})
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromBytes(raw)
}

// removeReturned removes the container's link if dockerd has moved it back to the host.
func (d *Driver) removeReturned(e *endpoint, n *network) error {
	host, err := netns.Open(d.hostPath())
	if err != nil {
		return err
	}
	defer host.Close()
	eng, err := kernel.Open(host, kernel.Options{})
	if err != nil {
		return err
	}
	defer eng.Close()
	o := e.owner(n)
	l, err := eng.Link(kernel.Host, o.IfName)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil || l.Alias != o.Tag() {
		return err
	}
	return eng.Remove(kernel.Objects{&kernel.StackedLink{Type: l.Kind, Name: o.IfName, OwnerTag: o.Tag()}})
}
