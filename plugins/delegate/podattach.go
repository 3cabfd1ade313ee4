package delegate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/internal/bootid"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/podnet/request"
)

// add attaches a pod to all its networks or to none. It returns the default network's result.
func (c *podCall) add(ctx context.Context, r *podRequest) (*cni.Result, error) {
	plan, err := c.plan(ctx, r)
	if err != nil {
		return nil, r.of(err)
	}
	unlock, err := c.state.Lock(ctx, c.key())
	if err != nil {
		return nil, r.of(err)
	}
	defer unlock()
	if err := c.undoInterrupted(ctx); err != nil {
		return nil, r.of(err)
	}
	boot, err := bootid.Read()
	if err != nil {
		return nil, r.of(err)
	}
	record := &podstate.Pod{
		ContainerID: c.args.ContainerID, IfName: c.args.IfName, Network: c.network, Namespace: r.Namespace, Name: r.Name, UID: r.UID,
		Boot: boot, Uptime: kernel.Uptime(),
	}
	for _, p := range plan {
		record.Attachments = append(record.Attachments, p.Attachment)
	}
	result, err := c.attachAll(ctx, record, plan, r.chosen)
	return result, r.of(err)
}

// undoInterrupted detaches what an interrupted ADD or DEL left. A pod that is attached is an error.
func (c *podCall) undoInterrupted(ctx context.Context) error {
	record, err := c.state.Pod(c.args.ContainerID, c.args.IfName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case record.Attached:
		return fmt.Errorf("container %s is already attached to network %s as %s, and to the networks of its pod: run DEL first", c.args.ContainerID, c.network, c.args.IfName)
	}
	if err := c.detachAll(ctx, record); err != nil {
		return fmt.Errorf("undo the interrupted operation on container %s: %w", c.args.ContainerID, err)
	}
	return nil
}

// attachAll attaches the networks of a record. After an error it detaches those that it began to attach.
func (c *podCall) attachAll(ctx context.Context, record *podstate.Pod, plan []planned, chosen bool) (result *cni.Result, err error) {
	if err := c.state.WritePod(record); err != nil {
		return nil, err
	}
	for i := range record.Attachments {
		a := &record.Attachments[i]
		got, err := c.attach(ctx, a)
		if err == nil && chosen {
			err = request.CheckRoutes(a.Name, plan[i].asked.DefaultRoute, got)
		}
		if err == nil {
			err = plan[i].asked.CheckAddresses(a.Name, a.IfName, got)
		}
		if err != nil {
			record.Attachments = record.Attachments[:i+1]
			return nil, c.undo(ctx, record, fmt.Errorf("network %s: %w", fullName(a), err))
		}
		if a.Default {
			result = got
		}
	}
	record.Attached = true
	if err := c.state.WritePod(record); err != nil {
		return nil, c.undo(ctx, record, err)
	}
	return result, nil
}

// attach runs ADD on one network and records its result.
func (c *podCall) attach(ctx context.Context, a *podstate.Attachment) (*cni.Result, error) {
	out, l, err := c.run(ctx, "ADD", a)
	if err != nil {
		return nil, err
	}
	a.Result = out
	return invoke.DecodeResult(l.version, l.members[len(l.members)-1].Type, out)
}

// undo detaches the networks of a record after an error, and returns that error and its own.
func (c *podCall) undo(ctx context.Context, record *podstate.Pod, cause error) error {
	if err := c.detachAll(context.WithoutCancel(ctx), record); err != nil {
		return fmt.Errorf("%w; undo: %w", cause, err)
	}
	return cause
}

// detachRecorded detaches all networks of the pod. The caller holds the pod's lock.
func (c *podCall) detachRecorded(ctx context.Context) error {
	record, err := c.state.Pod(c.args.ContainerID, c.args.IfName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another DEL did it
	}
	if err != nil {
		return err
	}
	return c.detachAll(ctx, record)
}

// detachAll detaches the networks of a record in reverse order. It continues after errors. The record keeps the
// attachments that failed, and is removed after the last.
func (c *podCall) detachAll(ctx context.Context, record *podstate.Pod) error {
	if record.Attached { // a killed DEL must not look like a complete pod
		record.Attached = false
		_ = c.state.WritePod(record) // on a full disk, DEL goes on: it makes room
	}
	var errs []error
	var left []podstate.Attachment
	for _, a := range slices.Backward(record.Attachments) {
		if _, _, err := c.run(ctx, "DEL", &a); err != nil {
			errs = append(errs, fmt.Errorf("network %s: %w", fullName(&a), err))
			left = slices.Insert(left, 0, a)
		}
	}
	if len(left) == 0 {
		return c.state.RemovePod(record.ContainerID, record.IfName)
	}
	record.Attachments = left
	return errors.Join(append(errs, c.state.WritePod(record))...)
}

// check runs CHECK on all networks of a pod and returns all differences.
func (c *podCall) check(ctx context.Context, record *podstate.Pod) error {
	var errs []error
	if !record.Attached {
		errs = append(errs, fmt.Errorf("container %s: its ADD was interrupted: run DEL", record.ContainerID))
	}
	for _, a := range record.Attachments {
		version, _ := rawjson.Find(a.Config, "cniVersion")
		text, _ := rawjson.Unquote(version.Raw) // the plugin wrote it
		if a.Result == nil || a.NoCheck || !cni.AtLeast(text, "0.4.0") {
			continue
		}
		if _, _, err := c.run(ctx, "CHECK", &a); err != nil {
			errs = append(errs, fmt.Errorf("network %s: %w", fullName(&a), err))
		}
	}
	return errors.Join(errs...)
}

// run runs the plugins of a network. Errors name the plugin.
func (c *podCall) run(ctx context.Context, verb string, a *podstate.Attachment) ([]byte, *loaded, error) {
	conf, err := rawjson.ParseObject(a.Config)
	if err != nil {
		return nil, nil, err
	}
	if len(a.RuntimeConfig) > 0 {
		conf.Set("runtimeConfig", a.RuntimeConfig)
	}
	if verb != "ADD" && len(a.Result) > 0 {
		conf.Set("prevResult", a.Result)
	}
	l, err := read(conf.Bytes())
	if err != nil {
		return nil, nil, err
	}
	if err := l.locate(c.args.Path); err != nil {
		return nil, nil, err
	}
	args := *c.args
	args.IfName = a.IfName
	out, failed, err := c.exec.ExecList(ctx, l.requests(verb), environment(verb, &args))
	if err != nil {
		return nil, nil, l.ofInterface(a.IfName, failed, err)
	}
	return out, l, nil
}

// ofInterface adds the interface and the member to an error. A position in the member's configuration is left out,
// because nobody wrote that text.
func (l *loaded) ofInterface(ifName string, i int, err error) error {
	e := *cni.AsError(err)
	e.Msg = fmt.Sprintf("interface %s: plugins[%d] %s: %s", ifName, i, l.members[i].Type, e.Msg)
	if req, err := l.request(&l.members[i], nil); err == nil {
		if _, _, is := cni.Relocate(e.Details, req, l.data, fmt.Sprintf("plugins[%d]", i)); is {
			e.Details = ""
		}
	}
	return &e
}

func fullName(a *podstate.Attachment) string {
	return strings.TrimPrefix(a.Namespace+"/"+a.Name, "/")
}
