package repair

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel"
)

// Rules restores the nftables rules and elements of an attachment on the host, and returns what differed. It does not need
// access to the container's network namespace. If an ADD or DEL of the attachment is in progress, or was interrupted, the
// error is "try again later" (11).
//
// It restores nothing for a container that ended without a DEL: its host end is gone. A newer attachment keeps the host
// ports and addresses that it took from such a container.
func Rules(dir *attach.Dir, rec *attach.Record) ([]kernel.RepairResult, error) {
	if rec.Host != "" { // its rules are in another namespace, that of an isolated network
		return nil, nil
	}
	if list, _, err := rulesOf(rec); err != nil || len(list) == 0 {
		return nil, err
	}
	rec, release, err := dir.Hold(rec.Owner())
	if errors.Is(err, os.ErrNotExist) { // a DEL was first
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer release()
	rules, flows, err := rulesOf(rec)
	if err != nil {
		return nil, err
	}
	e, err := kernel.Open(nil, kernel.Options{Alive: func(tag string) bool { return dir.IsNewer(tag, rec) }, SameContainer: dir.SameContainer})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	if gone, err := hasEnded(e, rec); gone || err != nil {
		return nil, err
	}
	if lost, err := e.Compare(rules); len(lost) == 0 || err != nil {
		return nil, err
	}
	out, err := e.Repair(append(rules, flows...))
	return slices.DeleteFunc(out, isTaken), err
}

// isTaken reports whether a newer attachment has an element.
func isTaken(r kernel.RepairResult) bool {
	_, taken := errors.AsType[*kernel.TakenError](r.Err)
	return taken
}

// hasEnded reports whether the host end of an attachment's pair is gone. The kernel removes it with the container's
// namespace.
func hasEnded(e *kernel.Engine, rec *attach.Record) (bool, error) {
	all, err := rec.Objects()
	if err != nil {
		return false, err
	}
	for _, v := range kernel.Of[*kernel.Veth](all) {
		l, err := e.Link(kernel.Host, v.Name)
		switch {
		case v.IsShared:
		case errors.Is(err, os.ErrNotExist), err == nil && v.OwnerTag != "" && l.Alias != v.OwnerTag:
			return true, nil
		case err != nil:
			return false, err
		}
	}
	return false, nil
}

// rulesOf returns the rules and elements of an attachment, and the connections that depend on them.
func rulesOf(rec *attach.Record) (rules, flows kernel.Objects, err error) {
	all, err := rec.Objects()
	if err != nil {
		return nil, nil, fmt.Errorf("read the record of container %s: %w", rec.ContainerID, err)
	}
	for _, o := range all {
		switch o.(type) {
		case *kernel.NFT, *kernel.Element, *kernel.ForwardRule:
			rules = append(rules, o)
		case *kernel.ConntrackFlows:
			flows = append(flows, o)
		}
	}
	return rules, flows, nil
}
