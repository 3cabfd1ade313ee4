package gc

import (
	"slices"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/netnspath"
	"github.com/fairlead/fairlead/libcni"
)

// Attachments returns the attachments of a network: those whose namespace exists or whose ADD is in progress, and the
// others. It knows them from the records and from the cache, which has the attachments of other plugins, too.
func Attachments(o Options, network string) (living, dead []cni.Attachment, err error) {
	dir := attach.Open(o.StateDir)
	living, err = dir.InProgress(network) // first: one of these may get its record a moment later
	if err != nil {
		return nil, nil, err
	}
	known := map[cni.Attachment]bool{}
	for _, at := range living {
		known[at] = true
	}
	records, err := dir.List(network)
	if err != nil {
		return nil, nil, err
	}
	var all attach.Namespaces
	for _, r := range records {
		at := cni.Attachment{ContainerID: r.ContainerID, IfName: r.IfName}
		if known[at] {
			continue
		}
		known[at] = true
		s, err := all.State(r)
		if err != nil {
			return nil, nil, err
		}
		if s == attach.StateGone || s == attach.StateInterrupted {
			dead = append(dead, at)
		} else {
			living = append(living, at)
		}
	}
	cached, err := o.Runtime.GetCachedAttachments("")
	for _, c := range cached {
		at := cni.Attachment{ContainerID: c.ContainerID, IfName: c.IfName}
		if c.Network != network || known[at] {
			continue
		}
		known[at] = true
		if mayLive(c) {
			living = append(living, at)
		} else {
			dead = append(dead, at)
		}
	}
	return living, dead, err
}

// ExistingContainers returns the IDs of the containers whose namespace exists, without those that are known to be dead.
func ExistingContainers(o Options, dead []string) (ids []string, err error) {
	records, err := attach.Open(o.StateDir).List("")
	if err != nil {
		return nil, err
	}
	var all attach.Namespaces
	for _, r := range records {
		s, err := all.State(r)
		if err != nil {
			return nil, err
		}
		if attach.Exists(s) && !slices.Contains(dead, r.ContainerID) {
			ids = append(ids, r.ContainerID)
		}
	}
	cached, err := o.Runtime.GetCachedAttachments("")
	for _, c := range cached {
		if mayLive(c) && !slices.Contains(dead, c.ContainerID) {
			ids = append(ids, c.ContainerID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), err
}

// mayLive reports whether the namespace of a cached attachment may exist. Old versions of libcni store no path. Then
// only the runtime knows.
func mayLive(a *libcni.NetworkAttachment) bool { return a.NetNS == "" || netnspath.Exists(a.NetNS) }
