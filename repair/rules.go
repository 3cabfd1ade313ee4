package repair

import (
	"fmt"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel"
)

// Rules restores the nftables rules and elements of an attachment on the host, and returns what differed. It does not need
// access to the container's network namespace. If an ADD or DEL of the attachment is in progress, or was interrupted, the
// error is "try again later" (11).
func Rules(dir *attach.Dir, rec *attach.Record) ([]kernel.RepairResult, error) {
	if rec.Host != "" { // its rules are in another namespace, that of an isolated network
		return nil, nil
	}
	list, err := rulesOf(rec)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	rec, release, err := dir.Hold(rec.Owner())
	if err != nil {
		return nil, err
	}
	defer release()
	if list, err = rulesOf(rec); err != nil {
		return nil, err
	}
	e, err := kernel.Open(nil, kernel.Options{Alive: dir.HasTag, SameContainer: dir.SameContainer})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	return e.Repair(list)
}

// rulesOf returns the rules and elements of an attachment, and what depends on them.
func rulesOf(rec *attach.Record) (out kernel.Objects, err error) {
	all, err := rec.Objects()
	if err != nil {
		return nil, fmt.Errorf("read the record of container %s: %w", rec.ContainerID, err)
	}
	for _, o := range all {
		switch o.(type) {
		case *kernel.NFT, *kernel.Element, *kernel.ConntrackFlows:
			out = append(out, o)
		}
	}
	return out, nil
}
