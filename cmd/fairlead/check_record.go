package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/internal/netconf"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/repair"
)

// checkRecords checks the attachments of a container to a network without a configuration by their records. It reports
// false if the network has a configuration, or no such attachment.
func (a *app) checkRecords(network, container string) (done bool, err error) {
	began := time.Now()
	if _, err := netconf.Load(a.confDir(), network); !isNoConfiguration(err) {
		return false, nil
	}
	records, err := (&selection{a, network, container}).records(attach.Open(a.getenv(attach.RootVariable)))
	if err != nil || len(records) == 0 {
		return false, nil
	}
	var errs []error
	for _, rec := range records {
		errs = append(errs, a.checkRecord(rec))
	}
	if err := errors.Join(errs...); err != nil {
		return true, err
	}
	s := &session{app: a, list: &libcni.NetworkConfigList{Name: network}, rt: &libcni.RuntimeConf{ContainerID: records[0].ContainerID, IfName: records[0].IfName}}
	return true, s.done("check", "unchanged", began)
}

func isNoConfiguration(err error) bool {
	_, none := errors.AsType[libcni.NoConfigsFoundError](err)
	_, other := errors.AsType[libcni.NotFoundError](err)
	return none || other
}

func (a *app) checkRecord(rec *attach.Record) error {
	dir := attach.Open(a.getenv(attach.RootVariable))
	r := repair.Attachment(dir, a.runtime(a.pluginPath()), rec, true)
	switch {
	case r.Error != "":
		return errors.New(r.Error)
	case r.Skipped != "":
		return fmt.Errorf("container %s: %s", rec.ContainerID, r.Skipped)
	case r.Lease != "":
		return fmt.Errorf("container %s: %s", rec.ContainerID, r.Lease)
	}
	var lines []string
	for _, o := range append(r.Restored, r.Failed...) {
		lines = append(lines, o.Side+": "+o.Object+": "+o.Problem)
	}
	if len(lines) == 0 {
		return nil
	}
	return fmt.Errorf("the attachment differs from its record: %s\n%s", count(len(lines), "object"), strings.Join(lines, "\n"))
}
