package libcni

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/cni"
)

// parallelDels is the number of stale attachments that GC deletes at once. In each DEL, the kernel waits about 20 ms for the
// removal of a link, and these waits overlap.
const parallelDels = 8

// delStale runs DEL for the cached attachments of a network that GC must not keep.
func (c *CNIConfig) delStale(ctx context.Context, list *NetworkConfigList, args GCArgs) error {
	attachments, err := c.GetCachedAttachments("")
	files := map[*NetworkAttachment]os.FileInfo{}
	for _, a := range attachments {
		if a.Network == list.Name {
			files[a], _ = os.Stat(c.fileOf(a))
		}
	}
	kept, failed := c.kept(list.Name, args.ValidAttachments, args.Listed) // after reading the cache, so that an ADD that ended in between is known
	if failed != nil {
		return failed
	}
	keep := setOf(kept)
	stale := slices.DeleteFunc(attachments, func(a *NetworkAttachment) bool {
		return a.Network != list.Name || keep[cni.Attachment{ContainerID: a.ContainerID, IfName: a.IfName}]
	})
	errs := make([]error, len(stale))
	done := inThisNetns(len(stale), func(i int) bool {
		if ctx.Err() != nil {
			return false
		}
		errs[i] = c.delStaleOne(ctx, list, args, stale[i], files[stale[i]])
		return true
	})
	if done < len(stale) {
		errs = append(errs, fmt.Errorf("GC was interrupted before the DEL of %d stale attachments: %w", len(stale)-done, context.Cause(ctx)))
	}
	return errors.Join(append([]error{err}, errs...)...)
}

func (c *CNIConfig) delStaleOne(ctx context.Context, list *NetworkConfigList, args GCArgs, a *NetworkAttachment, before os.FileInfo) (err error) {
	rt := &RuntimeConf{ContainerID: a.ContainerID, NetNS: a.NetNS, IfName: a.IfName, Args: a.CniArgs, CapabilityArgs: a.CapabilityArgs}
	end, ok := c.adding.collect(list.network().attached(rt))
	if !ok {
		return nil // the caller is working on it
	}
	defer end()
	defer func() {
		if err != nil {
			err = fmt.Errorf("delete stale attachment of container %s, interface %s: %w", a.ContainerID, a.IfName, err)
		}
	}()
	if args.Lock != nil {
		unlock, err := args.Lock(ctx, cni.Attachment{ContainerID: a.ContainerID, IfName: a.IfName})
		if err != nil {
			return err
		}
		defer unlock()
	}
	now, err := os.Stat(c.fileOf(a))
	if err != nil || before == nil || !os.SameFile(before, now) || !before.ModTime().Equal(now.ModTime()) {
		return nil // another process has deleted it, or added it again
	}
	return c.del(ctx, list.network(), list.Plugins, rt)
}

// inThisNetns calls do for 0 to n-1, several at once, until one returns false. It returns how many returned true. All calls
// run on threads in the caller's network namespace. The caller's thread may be the only one there.
func inThisNetns(n int, do func(i int) bool) (done int) {
	var next, good atomic.Int64
	work := func() {
		for i := int(next.Add(1)) - 1; i < n && do(i); i = int(next.Add(1)) - 1 {
			good.Add(1)
		}
	}
	var group sync.WaitGroup
	if own, err := threadNetns(); err == nil {
		for range min(parallelDels, n) - 1 {
			group.Go(func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				if ns, err := threadNetns(); err == nil && ns == own {
					work()
				}
			})
		}
	}
	work()
	group.Wait()
	return int(good.Load())
}

// threadNetns identifies the network namespace of the calling thread.
func threadNetns() (string, error) { return os.Readlink("/proc/thread-self/ns/net") }
