package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
)

// clear meets what is left of an earlier ADD of this attachment: one that was
// cut off, or whose namespace is gone, is undone; one that stands is an error.
func (j *job) clear(ctx context.Context) error {
	rec, err := j.dir.Read(j.att.Owner)
	if err != nil {
		return nil // none, or unreadable: names and owners tell the rest
	}
	i := rec.Last(j.Name)
	switch {
	case j.Chained && (i < 0 || rec.Parts[i].Done):
		return nil // the second of its type in a list
	case rec.Living() && attached(rec) && !j.Chained:
		return cni.Errorf(cni.CodeInvalidNetworkConfig, "container %s is already attached to network %s as %s, with %s: DEL it first",
			rec.ContainerID, rec.Network, rec.IfName, addresses(rec))
	case i >= 0 && rec.Parts[i].Adding():
		return cni.Errorf(cni.CodeTryAgainLater, "another ADD of container %s to network %s as %s is at work (process %d)",
			rec.ContainerID, rec.Network, rec.IfName, rec.Parts[i].PID)
	}
	if err := j.undoEarlier(ctx, rec, i); err != nil {
		return fmt.Errorf("undo an earlier ADD of this attachment: %w", err)
	}
	return nil
}

// undoEarlier removes what an earlier ADD made: of a chained plugin its own
// part, of the first of a list everything. An attachment whose namespace went
// away under it (a restart) gets its addresses back, so they are kept.
func (j *job) undoEarlier(ctx context.Context, rec *attach.Record, own int) error {
	if j.Chained {
		return errors.Join(j.engine.Remove(rec.Parts[own].Objects), j.forget(anyPart))
	}
	for _, p := range slices.Backward(rec.Parts) {
		if err := j.engine.Remove(p.Objects); err != nil {
			return err
		}
	}
	if attached(rec) && !rec.Living() {
		j.ipam.again = true
	} else if err := j.ipam.del(ctx); err != nil {
		return err
	}
	return j.dir.Remove(j.att.Owner)
}

func attached(rec *attach.Record) bool {
	for _, p := range rec.Parts {
		if !p.Done {
			return false
		}
	}
	return len(rec.Parts) > 0
}

func addresses(rec *attach.Record) string {
	s := ""
	for _, p := range rec.Parts {
		if p.Result == nil {
			continue
		}
		for _, ip := range p.Result.IPs {
			if s != "" {
				s += ", "
			}
			s += ip.Address.String()
		}
		break
	}
	if s == "" {
		return "no address"
	}
	return s
}

// undo takes a failed ADD back: the kernel's objects (the engine's Apply undid
// those of the step that failed), the addresses, the record's part.
func (j *job) undo(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	var errs []error
	if j.ipam.added { // before the links, over which it may have to say so
		errs = append(errs, j.ipam.del(ctx))
	}
	errs = append(errs, j.engine.Undo())
	errs = append(errs, j.release(), j.forget(attach.Part.Mine))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	return nil
}

func anyPart(attach.Part) bool { return true }

// release frees the claims that the record, or this call, names.
func (j *job) release() error {
	c, ok := j.conf.(Claimer)
	if !ok {
		return nil
	}
	ports := c.Claims()
	if rec, err := j.dir.Read(j.att.Owner); err == nil {
		if i := rec.Last(j.Name); i >= 0 {
			ports = append(ports, rec.Parts[i].Ports...)
		}
	}
	return j.dir.Unclaim(j.att.Owner, ports)
}

// forget drops the newest part of this plugin, if it is one that may go; the
// record goes with its last.
func (j *job) forget(may func(attach.Part) bool) error {
	rec, err := j.dir.Read(j.att.Owner)
	if errors.Is(err, os.ErrNotExist) {
		return j.dir.Remove(j.att.Owner)
	}
	if err != nil {
		return err
	}
	if i := rec.Last(j.Name); i >= 0 && may(rec.Parts[i]) {
		rec.Parts = append(rec.Parts[:i], rec.Parts[i+1:]...)
	}
	if len(rec.Parts) == 0 {
		return j.dir.Remove(j.att.Owner)
	}
	defer rec.Unlock()
	return j.dir.Write(rec)
}
