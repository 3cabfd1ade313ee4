package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/internal/bootid"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/podnet/request"
	"github.com/fairlead/fairlead/skel"
)

const validAttachments = "cni.dev/valid-attachments"

// gc detaches all networks of pods that are not valid. Then the default network's plugins remove attachments without a
// record. The other networks need no GC of their own, because a record exists before the first change and until after the
// last.
func (p pod) gc(ctx context.Context, args *skel.CmdArgs) error {
	ctx, start := plugin.GCStart(ctx)
	call, err := p.begin(args)
	if err != nil {
		return err
	}
	conf, err := rawjson.ParseObject(args.StdinData)
	if err != nil {
		return cni.Invalid(args.StdinData, "", "want an object")
	}
	var valid []cni.Attachment
	raw, ok := conf.Get(validAttachments)
	if !ok || rawjson.Decode(raw, &valid) != nil {
		return cni.Invalid(args.StdinData, validAttachments, "want the list of valid attachments")
	}
	kept, err := call.collect(ctx, valid, start)
	for _, a := range kept { // an attachment of another network with the same name is not in the runtime's list
		if !slices.Contains(valid, a) {
			valid = append(valid, a)
		}
	}
	raw, encodeErr := json.Marshal(valid)
	if encodeErr != nil {
		return errors.Join(err, encodeErr)
	}
	conf.Set(validAttachments, raw)
	return errors.Join(err, p.chain.gc(ctx, withConf(args, conf)))
}

// collect detaches the networks of this network's pods that are not valid. It returns the attachments that stay.
func (c *podCall) collect(ctx context.Context, valid []cni.Attachment, start time.Duration) (kept []cni.Attachment, err error) {
	keys, err := c.state.Pods()
	errs := []error{err}
	for _, k := range keys {
		record, err := c.state.Pod(k.ContainerID, k.IfName)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		isValid := slices.Contains(valid, cni.Attachment{ContainerID: k.ContainerID, IfName: k.IfName})
		if !isValid && record.Network == c.network && isOlder(record, start) {
			if err = c.collectPod(ctx, k, record); err == nil {
				continue
			}
			if !errors.Is(err, podstate.ErrBusy) {
				errs = append(errs, fmt.Errorf("container %s: %w", k.ContainerID, err))
			}
		}
		for _, a := range record.Attachments {
			kept = append(kept, cni.Attachment{ContainerID: k.ContainerID, IfName: a.IfName})
		}
	}
	for _, k := range c.state.Unrecorded() {
		if unlock, err := c.state.TryLock(k); err == nil {
			errs = append(errs, c.clearUnrecorded(k))
			unlock()
		}
	}
	return kept, errors.Join(errs...)
}

// isOlder reports whether an ADD began before a time of this boot.
func isOlder(record *podstate.Pod, start time.Duration) bool {
	boot, err := bootid.Read()
	return err == nil && (record.Boot != boot || record.Uptime < start)
}

// collectPod detaches all networks of a pod, as its DEL would, unless another operation on it is running.
func (c *podCall) collectPod(ctx context.Context, k podstate.Key, record *podstate.Pod) error {
	unlock, err := c.state.TryLock(k)
	if err != nil {
		return err
	}
	defer unlock()
	now, err := c.state.Pod(k.ContainerID, k.IfName)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (now.Boot != record.Boot || now.Uptime != record.Uptime) {
		return nil // a DEL was faster, and perhaps another ADD after it
	}
	args := &skel.CmdArgs{ContainerID: k.ContainerID, IfName: k.IfName, Path: c.args.Path}
	for _, kv := range (&request.Pod{ID: k.ContainerID, Namespace: record.Namespace, Name: record.Name, UID: record.UID}).KubernetesArgs() {
		if args.Args != "" {
			args.Args += ";"
		}
		args.Args += kv[0] + "=" + kv[1]
	}
	other := *c
	other.args = args
	return other.detachRecorded(ctx)
}
