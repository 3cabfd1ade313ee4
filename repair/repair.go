// Package repair compares attachments with their records and restores the objects that differ.
package repair

import (
	"errors"
	"strings"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/libcni"
)

// Report describes the repair of one attachment.
type Report struct {
	Network   string   `json:"network"`
	Container string   `json:"container"`
	IfName    string   `json:"ifname"`
	Restored  []Object `json:"restored"`
	Failed    []Object `json:"failed"`
	Skipped   string   `json:"skipped,omitempty"` // why nothing was done
	Lease     string   `json:"lease,omitempty"`   // why addresses from DHCP and their routes were not restored
	Error     string   `json:"error,omitempty"`
}

// Object is an object that differed from its record.
type Object struct {
	Side    string `json:"side"`
	Object  string `json:"object"`
	Problem string `json:"problem"`
	Error   string `json:"error,omitempty"` // why it could not be restored
}

// Attachment restores the objects of an attachment. With dry it only reports which objects differ. It leaves what plugins
// of other software changed, see ChangedByOthers, and addresses whose DHCP lease is lost, see Lease.
func Attachment(dir *attach.Dir, runtime *libcni.CNIConfig, rec *attach.Record, dry bool) Report {
	out := Report{Network: rec.Network, Container: rec.ContainerID, IfName: rec.IfName, Restored: []Object{}, Failed: []Object{}}
	switch s := rec.State(); s {
	case attach.StateOK:
	case attach.StateAdding:
		out.Skipped = "an ADD is running"
		return out
	case attach.StateStaged:
		out.Skipped = "the runtime has not moved the link into the container yet"
		return out
	default:
		out.Skipped = s + " (fairlead gc --all removes it)"
		return out
	}
	lease := LeaseOf(runtime, rec)
	out.Lease = lease.Problem
	found, err := restore(dir, runtime, rec, lease, dry)
	if e, ok := errors.AsType[*cni.Error](err); ok && e.Code == cni.CodeTryAgainLater {
		out.Skipped = "an ADD or DEL is running"
		return out
	}
	if (err != nil || dry && len(found) > 0) && !(dir.IsCurrent(rec) && rec.HasNetns()) {
		out.Skipped = "it was removed in the meantime"
		return out
	}
	if err != nil {
		out.Error = err.Error()
	}
	for _, f := range found {
		o := Object{Side: f.Object.Side().String(), Object: f.Object.String(), Problem: strings.Join(f.What, ", ")}
		if f.Err == nil {
			out.Restored = append(out.Restored, o)
			continue
		}
		o.Error = f.Err.Error()
		out.Failed = append(out.Failed, o)
	}
	return out
}

// restore locks the attachment while it works, so that no DEL runs at the same time.
func restore(dir *attach.Dir, runtime *libcni.CNIConfig, rec *attach.Record, lease *Lease, dry bool) (out []kernel.RepairResult, err error) {
	if !dry {
		held, release, err := dir.Hold(rec.Owner())
		if err != nil {
			return nil, err
		}
		defer release()
		held.Netns, rec = rec.Netns, held // where the caller found the namespace
	}
	list, err := rec.Objects()
	if err != nil {
		return nil, err
	}
	list = lease.Valid(list)
	later := ChangedByOthers(runtime, rec)
	err = InHost(rec, func() error {
		e, end, err := Engine(dir, rec)
		if err != nil {
			return err
		}
		defer end()
		if !dry {
			out, err = e.Repair(list, later...)
			return err
		}
		diffs, err := e.Compare(list, later...)
		for _, d := range diffs {
			out = append(out, kernel.RepairResult{Difference: d})
		}
		return err
	})
	return out, err
}
