package crash

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// mended are points at which something was left once: every call of the class.
var mended = []struct {
	scene string
	point
}{
	// The address that was linked into place belonged to nobody.
	{"host-local", point{verb: "ADD", kind: kindError, class: "unlinkat $WORK/ipam/.fairlead/n/address", errno: unix.EIO, then: byDel}},
	// GC took the age of the index that it built for that of the address.
	{"host-local", point{verb: "ADD", kind: kindKill, class: "pwrite64 $WORK/ipam/.fairlead/n/index", then: byGC}},
	// Of a transaction whose answer was lost nothing was undone; nor were emptied sets.
	{"bridge/masquerade", point{verb: "ADD", kind: kindError, class: "recvfrom socket", errno: unix.ENOMEM, then: byDel}},
	{"bridge/masquerade", point{verb: "ADD", kind: kindError, class: "pwrite64 $WORK/run/attach/n/a,eth#.json~ (deleted)", errno: unix.EIO, then: byGC}},
	// The record was thrown away as another boot's; or it could not be read, and DEL was content.
	{"bridge/masquerade", point{verb: "ADD", kind: kindError, class: "openat /proc/sys/kernel/random/boot_id", errno: unix.EMFILE, then: byDel}},
	{"bridge/masquerade", point{verb: "DEL", kind: kindError, class: "openat $WORK/run/attach/n/a,eth#.json", errno: unix.ENOMEM, then: byDel}},
	// GC left the place of the record.
	{"bridge", point{verb: "ADD", kind: kindKill, class: "pwrite64 $WORK/run/attach/n/a,eth#.json~", then: byGC}},
	// What counts as written was not.
	{"bridge", point{verb: "ADD", kind: kindShort, class: "write /proc/sys/net/ipv#/conf/eth#/accept_ra", then: byDel}},
	// On a link that outlives the attachment, routes and rules whose answer was lost.
	{"sbr", point{verb: "ADD", kind: kindError, class: "recvfrom socket", errno: unix.ENOMEM, then: byGC}},
	// A part of a value was written, and not taken back.
	{"tuning", point{verb: "ADD", kind: kindShort, class: "write /proc/sys/net/core/somaxconn", then: byGC}},
	// The container's namespace counted as another's when it could not be looked at.
	{"tuning", point{verb: "DEL", kind: kindError, class: "newfstatat $WORK/netns", errno: unix.EIO, then: byDel}},
	// Claims: without a record, and torn.
	{"portmap", point{verb: "ADD", kind: kindKill, class: "openat $WORK/run/attach/n/a,eth#.json~", then: byGC}},
	{"portmap", point{verb: "ADD", kind: kindCut, class: "pwrite64 $WORK/run/hostports/udp-#", then: byDel}},
	// The device stayed down: an undo undid itself; and the kill came before the move.
	{"host-device", point{verb: "ADD", kind: kindError, class: "write /proc/sys/net/ipv#/conf/eth#/ndisc_notify", errno: unix.EBUSY, then: byGC}},
	{"host-device", point{verb: "ADD", kind: kindKill, class: "sendto socket", then: byDel}},
	// A clock set back made it look newer than any GC.
	{"host-device", point{verb: "ADD", kind: kindClock, class: "openat /proc/sys/kernel/random/boot_id", shift: tenYears, then: byGC}},
	// A daemon that could not be asked counted as one that is not there.
	{"dhcp", point{verb: "DEL", kind: kindError, class: "fcntl socket", errno: unix.ENOMEM, then: byDel}},
	// The switch took the new port of a name for the old one, whose device was gone.
	{"ovs", point{verb: "DEL", kind: kindKill, class: "socket", then: byAdd}},
	{"ovs", point{verb: "ADD", kind: kindError, class: "read socket", errno: unix.EIO, then: byAdd}},
	// Routes that a link loses as it changes its router were put back by a write of their own.
	{"vrf", point{verb: "ADD", kind: kindKill, class: "recvfrom socket", then: byGC}},
	// The index still had an address whose file was gone, and said of itself that it was whole.
	{"whereabouts", point{verb: "DEL", kind: kindError, class: "pwrite64 $WORK/lib/fairlead/addresses/.fairlead/whereabouts/index", errno: unix.ENOMEM, then: byAdd}},
	// An address' file had two names for a moment, and was then taken for another's.
	{"whereabouts", point{verb: "DEL", kind: kindError, class: "renameat $WORK/lib/fairlead/addresses/whereabouts/#.#.#.#", errno: unix.ENOSPC, then: byGC}},
	// The next line of the journal ran into one that was cut off.
	{"whereabouts", point{verb: "DEL", kind: kindCut, class: "write $WORK/lib/fairlead/journal", then: byGC}},
	// Temporary files.
	{"flannel", point{verb: "ADD", kind: kindError, class: "pwrite64 $WORK/lib/flannel/a~", errno: unix.ENOSPC, then: byDel}},
	{"example/21-dbnet-0.3.1", point{verb: "ADD", kind: kindCut, class: "write $WORK/cache/.result-#", then: byDel}},
}

// TestMended plays each again.
func TestMended(t *testing.T) {
	byScene := map[string][]point{}
	for _, m := range mended {
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
				for p.nth = 1; p.nth <= n; p.nth++ {
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
