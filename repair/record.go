package repair

import (
	"fmt"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugins/ovs"
)

// ChangedByOthers returns what plugins of other software changed: attributes of an attachment's interfaces, and routes
// that they removed. runtime has the results that runtimes cached.
func ChangedByOthers(runtime *libcni.CNIConfig, rec *attach.Record) kernel.Objects {
	return rec.ChangedByOthers(finalResult(runtime, rec))
}

// finalResult returns the result of an attachment's list that its runtime cached, or nil.
func finalResult(runtime *libcni.CNIConfig, rec *attach.Record) *cni.Result {
	a := cached(runtime, rec)
	if a == nil {
		return nil
	}
	list, err := a.List()
	if err != nil {
		return nil
	}
	res, err := runtime.GetNetworkListCachedResult(list, &libcni.RuntimeConf{ContainerID: a.ContainerID, IfName: a.IfName})
	if err != nil {
		return nil
	}
	return res
}

// cached returns what the runtime cached about an attachment, or nil. It reads one file: the cache of a large host has one
// for every attachment.
func cached(runtime *libcni.CNIConfig, rec *attach.Record) *libcni.NetworkAttachment {
	rt := &libcni.RuntimeConf{ContainerID: rec.ContainerID, IfName: rec.IfName}
	config, _, _ := runtime.GetNetworkListCachedConfig(&libcni.NetworkConfigList{Name: rec.Network}, rt)
	if config == nil { // the cache has no such attachment, or its file cannot be read
		return nil
	}
	return &libcni.NetworkAttachment{ContainerID: rec.ContainerID, Network: rec.Network, IfName: rec.IfName, Config: config}
}

// Engine opens an engine in this network namespace and in the container's. The caller calls end.
func Engine(dir *attach.Dir, rec *attach.Record) (e *kernel.Engine, end func(), err error) {
	ns, err := netns.Open(rec.Netns)
	if err != nil {
		return nil, nil, err
	}
	if !rec.HasNetns() { // another container has taken the path since
		ns.Close()
		return nil, nil, fmt.Errorf("%s is the namespace of another container now", rec.Netns)
	}
	e, err = kernel.Open(ns, kernel.Options{Alive: dir.Alive, SameContainer: dir.SameContainer})
	if err != nil {
		ns.Close()
		return nil, nil, err
	}
	sw := ovs.Switch(rec.Network)
	e.UseSwitch(sw)
	return e, func() { e.Close(); sw.Close(); ns.Close() }, nil
}

// InHost runs f in the network namespace that holds the host's side of an attachment: the network's namespace for an
// isolated network, otherwise the current one.
func InHost(rec *attach.Record, f func() error) error {
	if rec.Host == "" {
		return f()
	}
	ns, err := netns.Open(rec.Host)
	if err != nil {
		return fmt.Errorf("open the network's namespace: %w (the agent creates it: fairlead agent status)", err)
	}
	defer ns.Close()
	return ns.Do(f)
}
