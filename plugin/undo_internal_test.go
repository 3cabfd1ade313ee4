package plugin

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/skel"
)

// TestFailedRollbackKeepsAddresses checks that the address of a failed ADD is not released while a rule with it may exist: the
// kernel part could not remove it.
func TestFailedRollbackKeepsAddresses(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	s := newSession(t.Context(), t.TempDir())
	defer s.close()
	must(t, s.begin(kerneltest.Netns(t), true))
	released := 0
	release := func(context.Context, *skel.CmdArgs) error { released++; return nil }
	j := &job{session: s, ipam: ipam{name: "x", added: true, local: &IPAM{Plugin: skel.Plugin{Funcs: skel.CNIFuncs{Del: release}}}}}
	s.jobs = []*job{j}
	rule := filepath.Join(t.TempDir(), "rule")
	s.declare(j, kernel.Objects{
		&kernel.Command{Probe: []string{"ls", rule}, Do: []string{"touch", rule}, Undo: []string{"false"}},
		&kernel.Addr{In: kernel.Host, Link: "missing", Prefix: netip.MustParsePrefix("10.0.0.1/24")},
	})
	if err := s.flush(); err == nil {
		t.Fatal("an address on a link that does not exist")
	}
	if err := s.undo(t.Context()); err == nil || released > 0 {
		t.Errorf("undo: %v; the address was released %d times", err, released)
	}
}

// TestUndoAfterDEL undoes an ADD that a DEL has ended. If another ADD has the attachment by now, its record, address and
// reservation stay. If nobody has it, the undo releases the address, and no ADD begins meanwhile.
func TestUndoAfterDEL(t *testing.T) {
	t.Parallel()
	owner := kernel.Owner{Network: "n", ContainerID: "c", IfName: "eth0"}
	for _, stored := range []bool{false, true} {
		for _, next := range []string{"", "reserved", "recorded"} {
			root := t.TempDir()
			s := newSession(t.Context(), root)
			released := 0
			release := func(context.Context, *skel.CmdArgs) error {
				released++
				if !s.dir.Reserved(owner) {
					t.Errorf("stored %v, next %q: another ADD may begin", stored, next)
				}
				return nil
			}
			s.jobs = []*job{{session: s, ipam: ipam{name: "x", added: true, local: &IPAM{Plugin: skel.Plugin{Funcs: skel.CNIFuncs{Del: release}}}}}}
			must(t, s.reserveAttachment(owner))
			record := func() *attach.Record {
				return s.dir.New(owner.Network, owner.ContainerID, owner.IfName, "/proc/self/ns/net")
			}
			if stored {
				s.rec = &openRecord{rec: record(), fresh: true, dirty: true}
				must(t, s.dir.Create(s.rec.rec, s.reservation))
				s.rec.stored = true
			}
			must(t, s.dir.Remove(owner)) // the DEL
			other := attach.Open(root)
			if next != "" {
				place, err := other.Reserve(owner)
				must(t, err)
				defer place.Free()
				if next == "recorded" {
					r := record()
					must(t, other.Create(r, place))
					r.Unlock()
				}
			}
			must(t, s.undo(t.Context()))
			s.close()
			if want := map[bool]int{true: 1}[next == ""]; released != want {
				t.Errorf("stored %v, next %q: the address was released %d times, want %d", stored, next, released, want)
			}
			if _, err := other.Read(owner); (err == nil) != (next == "recorded") || other.Reserved(owner) != (next == "reserved") {
				t.Errorf("stored %v, next %q: the record: %v; reserved %v", stored, next, err, other.Reserved(owner))
			}
		}
	}
}

// create writes the record of an attachment that no process works on.
func create(t *testing.T, dir *attach.Dir, o kernel.Owner, netns string, parts ...attach.Part) *attach.Record {
	t.Helper()
	place, err := dir.Reserve(o)
	must(t, err)
	r := dir.New(o.Network, o.ContainerID, o.IfName, netns)
	r.Parts = parts
	must(t, dir.Create(r, place))
	r.Unlock()
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFailedUndoKeepsAddresses undoes an ADD whose device cannot return to the host, because another link has its name by
// now. The device is still in the container with its address, so nobody else may get the address.
func TestFailedUndoKeepsAddresses(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	kerneltest.Run(t, "ip", "link", "add", "dev0", "type", "veth", "peer", "name", "up0")
	s := newSession(t.Context(), t.TempDir())
	defer s.close()
	if err := s.begin(kerneltest.Netns(t), true); err != nil {
		t.Fatal(err)
	}
	released := 0
	release := func(context.Context, *skel.CmdArgs) error { released++; return nil }
	s.jobs = []*job{{session: s, ipam: ipam{name: "x", added: true, local: &IPAM{Plugin: skel.Plugin{Funcs: skel.CNIFuncs{Del: release}}}}}}
	owner := kernel.Owner{Network: "n", ContainerID: "c", IfName: "eth0"}
	if err := s.engine.Apply(kernel.Objects{&kernel.HostDevice{Device: "dev0", Name: "eth0", OwnerTag: kernel.HostDeviceTag(owner, "dev0")}}); err != nil {
		t.Fatal(err)
	}
	kerneltest.Run(t, "ip", "link", "add", "dev0", "type", "veth", "peer", "name", "x0")
	if err := s.undo(t.Context()); err == nil || released > 0 {
		t.Errorf("undo: %v; the address was released %d times", err, released)
	}
}

// TestAddDuringCollection checks that no ADD of an attachment begins while a collector removes what an interrupted ADD left,
// and that the collector leaves an ADD alone that began before.
func TestAddDuringCollection(t *testing.T) {
	t.Parallel()
	owner := kernel.Owner{Network: "n", ContainerID: "c", IfName: "eth0"}
	ctx := Collecting(t.Context())
	root := t.TempDir()
	dir := attach.Open(root)
	interrupted := func() {
		t.Helper()
		create(t, dir, owner, "", attach.Part{Plugin: "bridge"})
	}
	begin := func() (*session, *job) {
		t.Helper()
		s := newSession(ctx, root)
		must(t, s.begin("", false))
		return s, &job{runner: &runner{Plugin: Plugin{Name: "bridge"}}, session: s, att: &Attachment{Owner: owner}}
	}
	interrupted()
	s, j := begin()
	must(t, j.findObjects(ctx))
	if _, err := dir.Reserve(owner); !errors.Is(err, os.ErrExist) {
		t.Errorf("an ADD during the collection: %v", err)
	}
	j.takePart()
	s.removals = []*job{j}
	must(t, s.removeNoted(ctx))
	s.close()
	if _, err := dir.Read(owner); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the collection: %v, want no record", err)
	}

	interrupted()
	place, err := dir.Reserve(owner) // the ADD is about to undo the interrupted one
	must(t, err)
	defer place.Free()
	s, j = begin()
	defer s.close()
	if err := j.findObjects(ctx); err == nil || !strings.Contains(err.Error(), "again after GC began") {
		t.Errorf("a collection during an ADD: %v", err)
	}
}

// TestAddBetweenPluginsOfCollection checks that a collector removes nothing of an ADD that began after one plugin of the list
// released the record, and that no ADD begins while the next plugin works without a record.
func TestAddBetweenPluginsOfCollection(t *testing.T) {
	t.Parallel()
	owner := kernel.Owner{Network: "n", ContainerID: "c", IfName: "eth0"}
	root := t.TempDir()
	dir := attach.Open(root)
	ctx := Collecting(t.Context())
	s := newSession(ctx, root)
	defer s.close()
	must(t, s.begin("", false))
	j := &job{runner: &runner{Plugin: Plugin{Name: "bridge"}}, session: s, att: &Attachment{Owner: owner}}

	create(t, dir, owner, "/nowhere", attach.Part{Plugin: "bridge", Done: true})
	must(t, j.findObjects(ctx))
	j.takePart()
	place, err := dir.Reserve(owner) // the ADD waits for the record
	must(t, err)
	s.removals = []*job{j}
	must(t, s.removeNoted(ctx))
	if !place.IsCurrent() {
		t.Error("the collector deleted the reservation of an ADD")
	}
	if err := j.keepADDAway(ctx); err == nil || !strings.Contains(err.Error(), "is in progress") {
		t.Errorf("the next plugin during an ADD: %v", err)
	}
	must(t, j.keepADDAway(CollectingReserved(ctx))) // the reservation is the collector's own
	place.Free()

	must(t, j.keepADDAway(ctx))
	if _, err := dir.Reserve(owner); !errors.Is(err, os.ErrExist) {
		t.Errorf("an ADD during the collection: %v", err)
	}
}

// TestWriteAfterDEL checks that an ADD which a DEL has ended does not replace the record of the next ADD: the first plugin of
// a list, and a chained one in a process of its own.
func TestWriteAfterDEL(t *testing.T) {
	t.Parallel()
	owner := kernel.Owner{Network: "n", ContainerID: "c", IfName: "eth0"}
	for _, chained := range []bool{false, true} {
		root := t.TempDir()
		dir := attach.Open(root)
		add := func() *attach.Record {
			t.Helper()
			return create(t, dir, owner, "/proc/self/ns/net", attach.Part{Plugin: "bridge", Done: true})
		}
		s := newSession(t.Context(), root)
		if chained {
			add()
		} else {
			must(t, s.reserveAttachment(owner))
		}
		b, err := s.loadRecord(owner)
		must(t, err)
		if b.dirty = true; !chained {
			must(t, s.write())
		}
		must(t, dir.Remove(owner))
		next := add()
		b.dirty = true
		if err := s.write(); err == nil || !strings.Contains(err.Error(), "a DEL has ended this ADD") {
			t.Errorf("chained %v: %v", chained, err)
		}
		if !s.isSuperseded() {
			t.Errorf("chained %v: it would undo the next ADD", chained)
		}
		must(t, s.undo(t.Context()))
		s.close()
		if !dir.IsCurrent(next) {
			t.Errorf("chained %v: the record of the next ADD is gone", chained)
		}
	}
}

// TestCollectInterruptedList checks that a collector removes all of an interrupted ADD, of which some plugins had finished.
func TestCollectInterruptedList(t *testing.T) {
	t.Parallel()
	owner := kernel.Owner{Network: "n", ContainerID: "c", IfName: "eth0"}
	root := t.TempDir()
	dir := attach.Open(root)
	r := dir.New(owner.Network, owner.ContainerID, owner.IfName, "/proc/self/ns/net")
	r.Parts = []attach.Part{{Plugin: "bridge", Done: true}, {Plugin: "portmap"}}
	must(t, dir.Write(r))
	r.Unlock()
	ctx := Collecting(t.Context())
	for _, together := range []bool{true, false} { // with one removal for both, or one each
		s := newSession(ctx, root)
		must(t, s.begin("", false))
		for _, name := range []string{"portmap", "bridge"} {
			j := &job{runner: &runner{Plugin: Plugin{Name: name}}, session: s, att: &Attachment{Owner: owner}}
			if err := j.findObjects(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			j.takePart()
			if s.removals = append(s.removals, j); !together || name == "bridge" {
				must(t, s.removeNoted(ctx))
			}
		}
		s.close()
		if left, err := dir.Read(owner); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("left: %+v, %v", left, err)
		}
		must(t, dir.Write(r))
		r.Unlock()
	}
}
