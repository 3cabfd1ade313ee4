package crash

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// fixedFailures lists the points at which an earlier version left something behind. Each is played at every call of its
// class.
var fixedFailures = []struct {
	scene string
	point
}{
	// When the temporary file could not be removed, the linked address file stayed without an owner.
	{"host-local", point{verb: "ADD", kind: kindError, class: "unlinkat $WORK/ipam/.fairlead/n/address", errno: unix.EIO, then: byDel}},
	// GC used the age of the rebuilt index instead of the age of the address.
	{"host-local", point{verb: "ADD", kind: kindKill, class: "pwrite64 $WORK/ipam/.fairlead/n/index", then: byGC}},
	// A transaction was not undone after its answer was lost, and its empty sets stayed.
	{"bridge/masquerade", point{verb: "ADD", kind: kindError, class: "recvfrom socket", errno: unix.ENOMEM, then: byDel}},
	{"bridge/masquerade", point{verb: "ADD", kind: kindError, class: "pwrite64 $WORK/run/attach/n/a,eth#.json~ (deleted)", errno: unix.EIO, then: byGC}},
	// The record was discarded as a record from another boot. Or it could not be read, and DEL returned success.
	{"bridge/masquerade", point{verb: "ADD", kind: kindError, class: "openat /proc/sys/kernel/random/boot_id", errno: unix.EMFILE, then: byDel}},
	{"bridge/masquerade", point{verb: "DEL", kind: kindError, class: "openat $WORK/run/attach/n/a,eth#.json", errno: unix.ENOMEM, then: byDel}},
	// A failed write to the socket was taken for an administrator's reference to the chain, and DEL left the chain.
	{"bridge/masquerade", point{verb: "DEL", kind: kindError, class: "sendto socket", errno: unix.EBUSY, then: byDel}},
	// The thread stayed in the container's namespace, and the rollback looked for the chain there.
	{"bridge/masquerade", point{verb: "ADD", kind: kindError, class: "setns net", errno: unix.EBUSY, then: byDel}},
	// GC did not remove the record's reservation.
	{"bridge", point{verb: "ADD", kind: kindKill, class: "pwrite64 $WORK/run/attach/n/a,eth#.json~", then: byGC}},
	// A short write counted as a complete one.
	{"bridge", point{verb: "ADD", kind: kindShort, class: "write /proc/sys/net/ipv#/conf/eth#/accept_ra", then: byDel}},
	// Routes and rules stayed after a lost answer, on a link that outlives the attachment.
	{"sbr", point{verb: "ADD", kind: kindError, class: "recvfrom socket", errno: unix.ENOMEM, then: byGC}},
	// A partly written value was not restored.
	{"tuning", point{verb: "ADD", kind: kindShort, class: "write /proc/sys/net/core/somaxconn", then: byGC}},
	// When stat failed, the container's namespace was taken for a different one.
	{"tuning", point{verb: "DEL", kind: kindError, class: "newfstatat $WORK/netns", errno: unix.EIO, then: byDel}},
	// Port claims without a record and truncated port claims stayed.
	{"portmap", point{verb: "ADD", kind: kindKill, class: "openat $WORK/run/attach/n/a,eth#.json~", then: byGC}},
	{"portmap", point{verb: "ADD", kind: kindCut, class: "pwrite64 $WORK/run/hostports/udp-#", then: byDel}},
	// The device stayed down: a rollback undid its own work, or the kill came before the device had moved.
	{"host-device", point{verb: "ADD", kind: kindError, class: "write /proc/sys/net/ipv#/conf/eth#/ndisc_notify", errno: unix.EBUSY, then: byGC}},
	{"host-device", point{verb: "ADD", kind: kindKill, class: "sendto socket", then: byDel}},
	// After the clock was set back, the attachment looked newer than any GC.
	{"host-device", point{verb: "ADD", kind: kindClock, class: "openat /proc/sys/kernel/random/boot_id", shift: tenYears, then: byGC}},
	// A failed connection was taken for a missing daemon.
	{"dhcp", point{verb: "DEL", kind: kindError, class: "fcntl socket", errno: unix.ENOMEM, then: byDel}},
	// The switch took the new port for the old port of the same name, whose device was gone.
	{"ovs", point{verb: "DEL", kind: kindKill, class: "socket", then: byAdd}},
	{"ovs", point{verb: "ADD", kind: kindError, class: "read socket", errno: unix.EIO, then: byAdd}},
	// Routes that a link loses when its master changes were restored in a separate write.
	{"vrf", point{verb: "ADD", kind: kindKill, class: "recvfrom socket", then: byGC}},
	// The index was marked complete but still had an address whose file was gone.
	{"whereabouts", point{verb: "DEL", kind: kindError, class: "pwrite64 $WORK/lib/fairlead/addresses/.fairlead/whereabouts/index", errno: unix.ENOMEM, then: byAdd}},
	// An address's file had two names for a moment, and was taken for a file of another owner.
	{"whereabouts", point{verb: "DEL", kind: kindError, class: "renameat $WORK/lib/fairlead/addresses/whereabouts/#.#.#.#", errno: unix.ENOSPC, then: byGC}},
	// The next line of the journal was appended to a truncated one.
	{"whereabouts", point{verb: "DEL", kind: kindCut, class: "write $WORK/lib/fairlead/journal", then: byGC}},
	// CHECK computed the objects again, because it had another form of the configuration than the ADD.
	{"fairlead-pod", point{verb: "ADD", kind: kindError, class: "openat /etc/machine-id", errno: unix.EMFILE, then: byDel}},
	// Temporary files and locks stayed.
	{"fairlead-pod", point{verb: "DEL", kind: kindError, class: "unlinkat $WORK/lib/fairlead/pods/a:eth#.lock", errno: unix.ENOMEM, then: byGC}},
	{"fairlead-pod", point{verb: "ADD", kind: kindKill, class: "fstat $WORK/lib/fairlead/pods/a:eth#.lock", then: byDel}},
	{"fairlead-pod", point{verb: "ADD", kind: kindKill, class: "renameat $WORK/lib/fairlead/pods/.new-a:eth#.json-#", then: byGC}},
	{"fairlead-pod", point{verb: "DEL", kind: kindKill, class: "renameat $WORK/lib/fairlead/pods/.new-a:eth#.json-#", then: byGC}},
	{"flannel", point{verb: "ADD", kind: kindError, class: "pwrite64 $WORK/lib/flannel/a~", errno: unix.ENOSPC, then: byDel}},
	{"example/40-pci-ovs/fused", point{verb: "ADD", kind: kindKill, class: "flock $WORK/run/attach/pci/a,eth#.json.chain~", then: byDel}},
	{"example/21-dbnet-0.3.1", point{verb: "ADD", kind: kindCut, class: "write $WORK/cache/.result-#", then: byDel}},
}

// TestFixedFailures plays each of these points again.
func TestFixedFailures(t *testing.T) {
	byScene := map[string][]point{}
	for _, m := range fixedFailures {
		byScene[m.scene] = append(byScene[m.scene], m.point)
	}
	for _, s := range scenes() {
		list := byScene[s.name]
		if len(list) == 0 {
			continue
		}
		delete(byScene, s.name)
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			kerneltest.Needs(t, s.needs...)
			m := newMachine(t, &s)
			l := m.learn()
			for _, p := range list {
				n := 0
				for _, c := range l[p.verb] {
					if c == p.class {
						n++
					}
				}
				if n == 0 {
					t.Errorf("%s: there is no such call any more: what does its work now?", p)
				}
				step := 1
				if testing.Short() { // the short lane of an emulated kernel
					step = max(n/3, 1)
				}
				for p.nth = 1; p.nth <= n; p.nth += step {
					if _, err := m.play(p); err != nil {
						t.Errorf("%s\n%v", p, err)
						m = newMachine(t, &s)
					}
				}
			}
		})
	}
	for name := range byScene {
		t.Errorf("no scene %s", name)
	}
}
