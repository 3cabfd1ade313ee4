package doctor

import (
	"fmt"
)

// stateDir reports a directory of records that cannot be used.
func stateDir(f *Facts) []Finding {
	if f.StateDir == nil {
		return nil
	}
	return []Finding{{Name: "state-directory-unusable", Problem: "records of attachments cannot be written: " + f.StateDir.Error(),
		Effect: "no container can be added, and the attachments that exist are unknown", Fix: "make the path a directory that root can write, on a tmpfs"}}
}

// damaged reports files that are no records. Their attachments cannot be examined.
func damaged(f *Facts) (out []Finding) {
	for _, x := range f.Damaged {
		container := "the container"
		if x.Owner.ContainerID != "" {
			container = "container " + x.Owner.ContainerID
		}
		problem := "its record is damaged: " + x.File
		if x.Err != nil {
			problem = "its record cannot be read: " + x.Err.Error()
		}
		out = append(out, Finding{Name: "record-damaged", Network: x.Owner.Network, Container: x.Owner.ContainerID, IfName: x.Owner.IfName,
			Problem: problem, Effect: "list, repair and doctor do not know the attachment, even if it still works",
			Fix: fmt.Sprintf("remove and add %s; if it is gone: fairlead gc --all", container)})
	}
	return out
}

func otherBoot(f *Facts) (out []Finding) {
	for _, file := range f.OtherBoot {
		out = append(out, Finding{Name: "record-of-another-boot", Problem: file + " was written before the last reboot",
			Effect: "it counts as absent; FAIRLEAD_RUN should be on a tmpfs, which is empty after a reboot", Fix: "rm -f " + file})
	}
	return out
}
