package attach_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/filelock"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
)

var owner = kernel.Owner{Network: "net", ContainerID: "c1", IfName: "eth0"}

// record returns a complete record whose namespace exists: the test's own.
func record(d *attach.Dir, o kernel.Owner) *attach.Record {
	r := d.New(o.Network, o.ContainerID, o.IfName, "/proc/self/ns/net")
	zero := 0
	r.Parts = []attach.Part{{
		Plugin: "bridge", IPAM: "host-local",
		Objects: attach.LazyOf(kernel.Objects{&kernel.Up{Link: "eth0"}}),
		Result:  attach.LazyOf(&cni.Result{IPs: []cni.IP{{Interface: &zero, Address: netip.MustParsePrefix("10.1.0.2/24")}}}),
		Ports:   []attach.Port{{HostPort: 80, ContainerPort: 8080, Protocol: "tcp"}},
	}}
	r.Parts[0].PID = os.Getpid()
	return r
}

// create reserves and writes a record, as an ADD does.
func create(d *attach.Dir, r *attach.Record) error {
	reservation, err := d.Reserve(r.Owner())
	if err != nil {
		return err
	}
	return d.Create(r, reservation)
}

// One ADD at a time holds the reservation, until it frees it or has a record.
func TestReservationIsExclusive(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := attach.Open(root)
	first, err := d.Reserve(owner)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Reserve(owner); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second: %v", err)
	}
	first.Free()
	first.Free()
	second, err := d.Reserve(owner)
	if err != nil {
		t.Fatal(err)
	}
	r := record(d, owner)
	if err := d.Create(r, second); err != nil {
		t.Fatal(err)
	}
	second.Free() // the record uses it by now
	third, err := d.Reserve(owner)
	if err != nil {
		t.Fatalf("next to a record: %v", err)
	}
	if err := d.Create(record(d, owner), third); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second record: %v", err)
	}
	if got, err := d.Read(owner); err != nil || !got.Parts[0].Adding() {
		t.Errorf("%+v, %v", got, err)
	}
	// A killed process leaves the reservation, and the record under both names.
	r.Unlock()
	file := filepath.Join(root, "attach", "net", "c1,eth0.json")
	if err := os.Link(file, file+"~"); err != nil {
		t.Fatal(err)
	}
	fourth, err := d.Reserve(owner)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := d.Read(owner); err != nil || got.Parts[0].Plugin != "bridge" {
		t.Errorf("the record is gone: %+v, %v", got, err)
	}
	// DEL deletes the reservation, so no record can be created.
	if err := d.Remove(owner); err != nil {
		t.Fatal(err)
	}
	if err := d.Create(record(d, owner), fourth); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after a DEL: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(root, "attach", "*", "*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// GC deletes reservations of killed processes, and no others.
func TestClearReservations(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := attach.Open(root)
	reservation, err := d.Reserve(owner)
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(root, "attach", "net", "c2,eth0.json~")
	if err := os.WriteFile(left, []byte(`{"boot": "to`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.ClearReservations("net"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a kill left: %v", err)
	}
	if err := d.Create(record(d, owner), reservation); err != nil {
		t.Errorf("of an ADD at work: %v", err)
	}
	if err := errors.Join(d.Remove(owner), d.ClearReservations("net"), d.ClearReservations("none")); err != nil {
		t.Error(err)
	}
	if all, _ := filepath.Glob(filepath.Join(root, "attach", "*")); len(all) > 0 {
		t.Errorf("left: %v", all)
	}
}

func TestRecordLifecycle(t *testing.T) {
	t.Parallel()
	d := attach.Open(t.TempDir())
	r := record(d, owner)
	if err := create(d, r); err != nil {
		t.Fatal(err)
	}
	if err := create(d, record(d, owner)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second one: %v", err)
	}
	got, err := d.Read(owner)
	if err != nil || !got.Parts[0].Adding() || !got.HasNetns() {
		t.Fatalf("being added: %+v, %v", got, err)
	}
	if err := d.Finish(r, 0); err != nil {
		t.Fatal(err)
	}
	got, err = d.Read(owner)
	if err != nil || !got.Parts[0].Done || got.Parts[0].Adding() {
		t.Errorf("finished: %+v, %v", got, err)
	}
	want := record(d, owner).Parts[0]
	same(t, got.Parts[0].Objects, want.Objects)
	same(t, got.Parts[0].Result, want.Result)
	if p := got.Parts[0]; p.Plugin != want.Plugin || p.IPAM != want.IPAM || !reflect.DeepEqual(p.Ports, want.Ports) || got.Namespace() != netns.IDAt("/proc/self/ns/net") {
		t.Errorf("read %+v\nwrote %+v", p, want)
	}
	// A record that is written again without being decoded stays the same.
	again := *got
	if err := errors.Join(d.Write(&again), d.Finish(&again, 1)); err != nil {
		t.Fatal(err)
	}
	got, err = d.Read(owner)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got.Parts[0].Objects, want.Objects)
	if all, err := d.List(""); err != nil || len(all) != 1 {
		t.Errorf("list: %v, %v", all, err)
	}
	if err := d.Remove(owner); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Read(owner); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed: %v", err)
	}
}

// same compares a value that was read with the one that was written.
func same[T any](t *testing.T, have, want attach.Lazy[T]) {
	t.Helper()
	h, err := have.Get()
	w, _ := want.Get() // never decoded
	if err != nil || !reflect.DeepEqual(h, w) {
		t.Errorf("read %+v, %v\nwrote %+v", h, err, w)
	}
}

// Objects of an unknown version are an error only when they are read.
func TestUnknownObjects(t *testing.T) {
	t.Parallel()
	var p attach.Part
	if err := cni.Decode([]byte(`{"plugin":"new","objects":[{"kind":"new","object":{}}]}`), &p); err != nil || p.Plugin != "new" {
		t.Fatal(p, err)
	}
	if _, err := p.Objects.Get(); err == nil || !strings.Contains(err.Error(), `unknown kind of object "new"`) {
		t.Errorf("%v", err)
	}
	if r, err := p.Result.Get(); r != nil || err != nil {
		t.Errorf("a result that is not there: %v, %v", r, err)
	}
}

// A torn or empty record, one of another boot or with unknown objects counts as absent and does not block a new one.
func TestInvalidRecords(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"empty": "", "torn": `{"boot":"`, "other boot": `{"boot":"00000000"}`, "no JSON": "\x00\x00\x00",
		"unknown object": `{"parts":[{"objects":[{"kind":"new","object":{}}]}]}`,
	} {
		root := t.TempDir()
		d := attach.Open(root)
		file := filepath.Join(root, "attach", "net", "c1,eth0.json")
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Read(owner); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
		if err := create(d, record(d, owner)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// finished returns a directory with the record of a finished ADD, the record's file and its content.
func finished(t *testing.T) (d *attach.Dir, file string, whole []byte) {
	t.Helper()
	root := t.TempDir()
	d, file = attach.Open(root), filepath.Join(root, "attach", "net", "c1,eth0.json")
	r := record(d, owner)
	if err := errors.Join(create(d, r), d.Finish(r, 0)); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return d, file, whole
}

// TestDamagedRecord changes each byte of a record in turn. The record counts as absent, so that DEL searches the
// attachment's objects: with a changed name of a link, it would remove another one.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	d, file, whole := finished(t)
	key := len(`{"sum"`) // with another key, the content is as it was
	for at := range whole {
		damaged := slices.Clone(whole)
		damaged[at] ^= 0x10
		if err := os.WriteFile(file, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Read(owner); err == nil && at >= key {
			t.Fatalf("byte %d of %s: %+v", at, damaged, got)
		}
	}
	if err := os.WriteFile(file, append(whole, "   "...), 0o600); err != nil { // as overwrite does
		t.Fatal(err)
	}
	if _, err := d.Read(owner); err != nil {
		t.Errorf("with spaces: %v", err)
	}
}

func TestAlive(t *testing.T) {
	t.Parallel()
	d := attach.Open(t.TempDir())
	r := record(d, owner)
	if d.Alive(owner.Tag()) {
		t.Error("alive without a record")
	}
	if err := errors.Join(create(d, r), d.Finish(r, 0)); err != nil {
		t.Fatal(err)
	}
	if !d.Alive(owner.Tag()) {
		t.Error("dead with a living namespace")
	}
	r.Netns = "/nonexistent"
	r.Parts[0].Done = true
	if err := d.Write(r); err != nil {
		t.Fatal(err)
	}
	if !d.Alive(owner.Tag()) {
		t.Error("dead although its namespace exists at another path")
	}
	r.NetnsCookie = netns.ID{Cookie: r.Namespace().Cookie + 1<<40}.StoredCookie()
	if err := d.Write(r); err != nil {
		t.Fatal(err)
	}
	if d.Alive(owner.Tag()) {
		t.Error("alive although its namespace is gone")
	}
	long := kernel.Owner{Network: strings.Repeat("n", 100), ContainerID: strings.Repeat("c", 100), IfName: "eth0"}
	if err := create(d, record(d, long)); err != nil {
		t.Fatal(err)
	}
	if len(long.Tag()) > 120 || !d.Alive(long.Tag()) {
		t.Errorf("a long name's tag %q (%d bytes) is not found", long.Tag(), len(long.Tag()))
	}
}

// The kernel gives a new namespace the device and inode of one that ended. A record is for the old one only. A record
// without a cookie, which earlier versions wrote, matches by device and inode.
func TestRecordOfReusedInode(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*attach.Record)
		alive  bool
	}{
		{"same namespace", func(*attach.Record) {}, true},
		{"without a cookie", func(r *attach.Record) { r.NetnsCookie = 0 }, true},
		{"another cookie", func(r *attach.Record) {
			r.NetnsCookie = netns.ID{Cookie: r.Namespace().Cookie + 1}.StoredCookie()
		}, false},
		{"a damaged cookie", func(r *attach.Record) { r.NetnsCookie++ }, true},
		{"another inode without a cookie", func(r *attach.Record) { r.NetnsID, r.NetnsCookie = "1:1", 0 }, false},
	} {
		d := attach.Open(t.TempDir())
		r := record(d, owner)
		tt.change(r)
		if err := errors.Join(create(d, r), d.Finish(r, 0)); err != nil {
			t.Fatal(err)
		}
		read, err := d.Read(owner)
		if err != nil || read.HasNetns() != tt.alive || d.Alive(owner.Tag()) != tt.alive || (read.State() == attach.StateOK) != tt.alive {
			t.Errorf("%s: has its namespace: %v, alive: %v, %v, %v", tt.name, read.HasNetns(), d.Alive(owner.Tag()), read.State(), err)
		}
	}
}

// TestClaims checks which host ports exclude each other.
func TestClaims(t *testing.T) {
	t.Parallel()
	port := func(ip string, n int, protocol string) attach.Port {
		return attach.Port{HostIP: ip, HostPort: n, Protocol: protocol}
	}
	for _, tt := range []struct {
		first, second attach.Port
		taken         bool
	}{
		{port("", 80, "tcp"), port("", 80, "tcp"), true},
		{port("", 80, "tcp"), port("192.0.2.1", 80, "tcp"), true},
		{port("192.0.2.1", 80, "tcp"), port("", 80, "tcp"), true},
		{port("192.0.2.1", 80, "tcp"), port("192.0.2.2", 80, "tcp"), false},
		{port("192.0.2.1", 80, "tcp"), port("0.0.0.0", 80, "tcp"), true},
		{port("0.0.0.0", 80, "tcp"), port("::", 80, "tcp"), false},
		{port("::", 80, "tcp"), port("fd00::1", 80, "tcp"), true},
		{port("", 80, "tcp"), port("", 80, "udp"), false},
		{port("", 80, "tcp"), port("", 81, "tcp"), false},
	} {
		d := attach.Open(t.TempDir())
		if err := create(d, record(d, owner)); err != nil {
			t.Fatal(err)
		}
		unlock, err := d.Claim(t.Context(), owner, []attach.Port{tt.first})
		if err != nil {
			t.Fatal(err)
		}
		other := kernel.Owner{Network: "net", ContainerID: "c2", IfName: "eth0"}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // the wait for the first ends with it
		if tt.first.HostPort == tt.second.HostPort && tt.first.Protocol == tt.second.Protocol {
			if _, err := d.Claim(ctx, other, []attach.Port{tt.second}); err == nil || !strings.Contains(err.Error(), "is held by attach.test (process ") {
				t.Errorf("while the first is in progress: %v", err)
			}
		}
		cancel()
		unlock()
		unlock, err = d.Claim(t.Context(), other, []attach.Port{tt.second})
		if (err != nil) != tt.taken || err != nil && !strings.Contains(err.Error(), "already taken by container c1 (network net, interface eth0) in "+record(d, owner).Netns) {
			t.Errorf("%v, then %v: %v", tt.first, tt.second, err)
		}
		if err == nil {
			unlock()
		}
		if err := errors.Join(d.Unclaim(t.Context(), owner, []attach.Port{tt.first}), d.Remove(owner)); err != nil {
			t.Fatal(err)
		}
		if unlock, err = d.Claim(t.Context(), other, []attach.Port{tt.second}); err != nil {
			t.Errorf("after the first freed it: %v", err)
		} else {
			unlock()
		}
	}
}

// TestUnclaimWaitsForContext checks that the freeing of a host port ends with its context while an ADD has the port's file
// locked, and that it creates no file.
func TestUnclaimWaitsForContext(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := attach.Open(root)
	ports := []attach.Port{{HostPort: 80, ContainerPort: 80, Protocol: "tcp"}}
	if err := d.Unclaim(t.Context(), owner, ports); err != nil {
		t.Error(err)
	}
	if files, _ := filepath.Glob(filepath.Join(root, "hostports", "*")); len(files) > 0 {
		t.Errorf("created %v", files)
	}
	unlock, err := d.Claim(t.Context(), kernel.Owner{Network: "net", ContainerID: "c2", IfName: "eth0"}, ports)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for _, err := range []error{d.Unclaim(ctx, owner, ports), d.DropClaims(ctx, func(string) bool { return true })} {
		if e, ok := errors.AsType[*cni.Error](err); !ok || e.Code != cni.CodeTryAgainLater {
			t.Errorf("while the file is locked: %v, want \"try again later\"", err)
		}
	}
}

// TestFIFOOfClaims checks that nobody waits for the writer of a FIFO in the place of a host port's file.
func TestFIFOOfClaims(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	file := filepath.Join(root, "hostports", "tcp-80")
	if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o700), syscall.Mkfifo(file, 0o600)); err != nil {
		t.Fatal(err)
	}
	d, ports := attach.Open(root), []attach.Port{{HostPort: 80, ContainerPort: 80, Protocol: "tcp"}}
	_, err := d.Claim(t.Context(), owner, ports)
	for _, err := range []error{err, d.Unclaim(t.Context(), owner, ports)} {
		if err == nil || !strings.Contains(err.Error(), file+": not a regular file") {
			t.Errorf("got %v", err)
		}
	}
}

// TestUnreadableRecord checks that an attachment keeps its host ports while its record cannot be read, for example
// because the system has no file descriptor left.
func TestUnreadableRecord(t *testing.T) {
	t.Parallel()
	long := kernel.Owner{Network: strings.Repeat("n", 100), ContainerID: strings.Repeat("c", 100), IfName: "eth0"}
	for _, first := range []kernel.Owner{owner, long} {
		root := t.TempDir()
		d := attach.Open(root)
		if err := create(d, record(d, first)); err != nil {
			t.Fatal(err)
		}
		ports := []attach.Port{{HostPort: 80, ContainerPort: 80, Protocol: "tcp"}}
		unlock, err := d.Claim(t.Context(), first, ports)
		if err != nil {
			t.Fatal(err)
		}
		unlock()
		files, err := filepath.Glob(filepath.Join(root, "attach", "*", "*.json"))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		if err := errors.Join(os.Rename(files[0], files[0]+".kept"), os.Symlink("/proc/self/mem", files[0])); err != nil { // reading it is EIO
			t.Fatal(err)
		}
		other := kernel.Owner{Network: "net", ContainerID: "other", IfName: "eth0"}
		if err := create(d, record(d, other)); err != nil {
			t.Fatal(err)
		}
		if list, damaged, err := d.Scan(""); err != nil || len(list) != 1 || len(damaged) != 1 || !errors.Is(damaged[0].Err, syscall.EIO) {
			t.Errorf("%s hides the others: %v, %v, %v", first.Tag(), list, damaged, err)
		}
		if list, err := d.List(""); !errors.Is(err, syscall.EIO) || len(list) != 1 {
			t.Errorf("the list does not report %s: %v, %v", first.Tag(), list, err)
		}
		if !d.HasTag(first.Tag()) || !d.Alive(first.Tag()) {
			t.Errorf("%s counts as gone", first.Tag())
		}
		second := kernel.Owner{Network: "net", ContainerID: "c2", IfName: "eth0"}
		if unlock, err := d.Claim(t.Context(), second, ports); err == nil {
			unlock()
			t.Errorf("another container gets the host port of %s", first.Tag())
		}
		if err := errors.Join(os.Remove(files[0]), os.Rename(files[0]+".kept", files[0])); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Claim(t.Context(), second, ports); err == nil || !strings.Contains(err.Error(), "already taken by container "+first.ContainerID) {
			t.Errorf("after the record is readable again: %v", err)
		}
	}
}

// While one process holds an attachment, no DEL and no other plugin changes it.
func TestHold(t *testing.T) {
	t.Parallel()
	d := attach.Open(t.TempDir())
	if _, _, err := d.Hold(owner); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a record: %v", err)
	}
	r := record(d, owner)
	if err := create(d, r); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Hold(owner); err == nil || cni.AsError(err).Code != cni.CodeTryAgainLater {
		t.Errorf("while its ADD is in progress: %v", err)
	}
	if got, err := d.TryTake(owner); err != nil || !got.Parts[0].Adding() {
		t.Errorf("DEL must not wait for an ADD: %+v, %v", got, err)
	}
	if err := d.Finish(r, 0); err != nil {
		t.Fatal(err)
	}
	held, release, err := d.Hold(owner)
	if err != nil || held.Parts[0].Plugin != "bridge" {
		t.Fatal(held, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := d.Take(ctx, owner); err == nil || cni.AsError(err).Code != cni.CodeTryAgainLater {
		t.Errorf("a DEL meanwhile: %v", err)
	}
	if _, _, err := d.Hold(owner); err == nil {
		t.Error("held twice")
	}
	if !d.Reserved(owner) {
		t.Error("an ADD may begin meanwhile")
	}
	if got, err := d.Read(owner); err != nil || got.Parts[0].Adding() {
		t.Errorf("read meanwhile: %+v, %v", got, err)
	}
	time.AfterFunc(20*time.Millisecond, release)
	taken, err := d.Take(t.Context(), owner)
	if err != nil {
		t.Fatalf("a DEL that waits: %v", err)
	}
	if _, _, err := d.Hold(owner); err == nil {
		t.Error("held while a DEL is in progress")
	}
	if err := d.Remove(owner); err != nil {
		t.Fatal(err)
	}
	taken.Unlock()
	if _, err := d.TryTake(owner); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the DEL: %v", err)
	}
	if d.Reserved(owner) {
		t.Error("still reserved")
	}
}

// After a DEL deleted a reservation, freeing the old one leaves the next ADD's in reservation.
func TestFreeKeepsOthersReservation(t *testing.T) {
	t.Parallel()
	d := attach.Open(t.TempDir())
	first, err := d.Reserve(owner)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(owner); err != nil {
		t.Fatal(err)
	}
	second, err := d.Reserve(owner)
	if err != nil {
		t.Fatal(err)
	}
	first.Free()
	if err := d.Create(record(d, owner), second); err != nil {
		t.Errorf("its reservation is gone: %v", err)
	}
}

// TestCreateAfterDEL verifies that an ADD whose reservation a DEL deleted neither succeeds nor takes the reservation of the
// next ADD.
func TestCreateAfterDEL(t *testing.T) {
	t.Parallel()
	d := attach.Open(t.TempDir())
	reserve := func() *attach.Reservation {
		t.Helper()
		r, err := d.Reserve(owner)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := reserve()
	if err := d.Remove(owner); err != nil {
		t.Fatal(err)
	}
	second := reserve()
	if err := d.Create(record(d, owner), first); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the first ADD: %v, want os.ErrNotExist", err)
	}
	if !d.Reserved(owner) {
		t.Error("the second ADD has lost its reservation")
	}
	if err := d.Create(record(d, owner), second); err != nil {
		t.Errorf("the second ADD: %v", err)
	}
	if d.Reserved(owner) {
		t.Error("the reservation has not become the record")
	}
}

// TestAddDuringGC verifies that a GC leaves an attachment alone that was added again after the GC took an interrupted ADD.
func TestAddDuringGC(t *testing.T) {
	t.Parallel()
	d := attach.Open(t.TempDir())
	add := func() *attach.Record {
		t.Helper()
		r := record(d, owner)
		r.Parts = []attach.Part{{Plugin: "bridge"}, {Plugin: "portmap"}}
		if err := create(d, r); err != nil {
			t.Fatal(err)
		}
		r.Unlock() // interrupted
		return r
	}
	for _, parts := range []int{0, 1} {
		taken, reservation, err := d.TakeForGC(add())
		if err != nil {
			t.Fatal(err)
		}
		if !d.HoldsForGC(taken, reservation) {
			t.Error("the GC does not hold what it took")
		}
		if err := d.Remove(owner); err != nil { // a DEL
			t.Fatal(err)
		}
		added := add()
		if d.HoldsForGC(taken, reservation) {
			t.Error("the GC holds the next attachment")
		}
		taken.Parts = taken.Parts[:parts]
		if err := d.ReplaceParts(taken, reservation); err != nil {
			t.Error(err)
		}
		if !d.IsCurrent(added) {
			t.Errorf("%d parts: the GC changed the record of the next attachment", parts)
		}
		if err := d.Remove(owner); err != nil {
			t.Fatal(err)
		}
	}
}

// TakeForGC works only while a listed attachment is unchanged and nobody else works on it; an ADD waits.
func TestSeizeOnlyUnchanged(t *testing.T) {
	t.Parallel()
	d := attach.Open(t.TempDir())
	o := kernel.Owner{Network: "n", ContainerID: "c", IfName: "eth0"}
	add := func() *attach.Record {
		t.Helper()
		reservation, err := d.Reserve(o)
		if err != nil {
			t.Fatal(err)
		}
		r := d.New(o.Network, o.ContainerID, o.IfName, "")
		r.Parts = []attach.Part{{Plugin: "bridge"}, {Plugin: "portmap"}}
		if err := d.Create(r, reservation); err != nil {
			t.Fatal(err)
		}
		return r
	}
	gone := func(why string, listed *attach.Record) {
		t.Helper()
		if _, _, err := d.TakeForGC(listed); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", why, err)
		}
	}
	first := add()
	gone("its ADD is in progress", first)
	first.Unlock() // interrupted
	reservation, err := d.Reserve(o)
	if err != nil {
		t.Fatal(err)
	}
	gone("an ADD has the reservation", first)
	if list, err := d.InProgress("n"); err != nil || len(list) != 1 || list[0].ContainerID != "c" || list[0].IfName != "eth0" {
		t.Errorf("beginning: %v, %v", list, err)
	}
	reservation.Free()

	r, reservation, err := d.TakeForGC(first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Reserve(o); !errors.Is(err, os.ErrExist) {
		t.Errorf("an ADD meanwhile: %v", err)
	}
	gone("another collector has it", first)
	r.Parts = r.Parts[:1]
	if err := d.ReplaceParts(r, reservation); err != nil {
		t.Fatal(err)
	}
	left, err := d.Read(o)
	if err != nil || len(left.Parts) != 1 {
		t.Fatalf("%+v, %v: want one part left", left, err)
	}
	if r, reservation, err = d.TakeForGC(left); err != nil {
		t.Fatal(err)
	}
	awaited := make(chan error)
	go func() {
		p, err := d.AwaitReservation(t.Context(), o)
		p.Free()
		awaited <- err
	}()
	r.Parts = nil
	if err := d.ReplaceParts(r, reservation); err != nil {
		t.Error(err)
	}
	if err := <-awaited; err != nil {
		t.Error(err)
	}
	if _, err := d.Read(o); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after its last part: %v", err)
	}
	add().Unlock()
	gone("it was added again", left)
}

// Files of killed processes and earlier boots are distinguished from ADDs in progress.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := attach.Open(root)
	at := kernel.Owner{Network: "net", ContainerID: "work", IfName: "eth0"}
	reservation, err := d.Reserve(at)
	if err != nil {
		t.Fatal(err)
	}
	defer reservation.Free()
	dir := filepath.Join(root, "attach", "net")
	old := filepath.Join(dir, "old,eth0.json")
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "c1,eth0.json~"), nil, 0o600),
		os.WriteFile(filepath.Join(dir, ",0123.json~"), nil, 0o600),
		os.WriteFile(old, []byte(`{"boot":"another"}`), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	if list := d.Interrupted(); len(list) != 1 || list[0] != owner {
		t.Errorf("interrupted: %v", list)
	}
	if files := d.OtherBoots(); len(files) != 1 || files[0] != old {
		t.Errorf("of other boots: %v", files)
	}
}

// The error of a failed wait names the process that holds the reservation.
func TestReservationHolder(t *testing.T) {
	t.Parallel()
	d := attach.Open(t.TempDir())
	o := kernel.Owner{Network: "n", ContainerID: "c", IfName: "eth0"}
	reservation, err := d.Reserve(o)
	if err != nil {
		t.Fatal(err)
	}
	defer reservation.Free()
	_, err = d.AwaitReservation(t.Context(), o)
	if want := fmt.Sprintf("eth0.json~ is held by attach.test (process %d)", os.Getpid()); !errors.Is(err, os.ErrExist) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not say %q", err, want)
	}
}

// TestListOfNetwork checks that a network's list has only its own records.
func TestListOfNetwork(t *testing.T) {
	t.Parallel()
	d := attach.Open(t.TempDir())
	for _, network := range []string{"net", "other", "net2"} {
		if err := create(d, record(d, kernel.Owner{Network: network, ContainerID: "c1", IfName: "eth0"})); err != nil {
			t.Fatal(err)
		}
	}
	for network, want := range map[string]int{"": 3, "net": 1, "none": 0} {
		list, err := d.List(network)
		if err != nil || len(list) != want || want == 1 && list[0].Network != network {
			t.Errorf("%q: %d records, %v; want %d", network, len(list), err, want)
		}
	}
}

// TestSharing checks that attachments share a host port only within one container, and that each is listed once.
func TestSharing(t *testing.T) {
	t.Parallel()
	d := attach.Open(t.TempDir())
	claim := func(o kernel.Owner, ports ...attach.Port) {
		t.Helper()
		if err := create(d, record(d, o)); err != nil {
			t.Fatal(err)
		}
		unlock, err := d.Claim(t.Context(), o, ports)
		if err != nil {
			t.Fatal(err)
		}
		unlock()
	}
	tcp := func(ip string, n int) attach.Port { return attach.Port{HostIP: ip, HostPort: n, Protocol: "tcp"} }
	same := kernel.Owner{Network: "net", ContainerID: "c1", IfName: "net1"}
	claim(same, tcp("192.0.2.1", 80), tcp("192.0.2.1", 81))
	claim(kernel.Owner{Network: "net", ContainerID: "c2", IfName: "eth0"}, tcp("192.0.2.2", 80))
	if got := d.Sharing(owner, []attach.Port{tcp("192.0.2.3", 80), tcp("192.0.2.3", 81)}); !reflect.DeepEqual(got, []kernel.Owner{same}) {
		t.Errorf("%v, want %v", got, same)
	}
}

// TestReadDuringWrite reads a record whose owner is writing it in place. The reader must not remove it.
func TestReadDuringWrite(t *testing.T) {
	t.Parallel()
	d, file, whole := finished(t)
	writer, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := syscall.Flock(int(writer.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := writer.Truncate(int64(len(whole) / 2)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Read(owner); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half a record: %v", err)
	}
	if _, err := d.TryTake(owner); cni.AsError(err).Code != cni.CodeTryAgainLater {
		t.Errorf("take half a record: %v", err)
	}
	if _, err := writer.WriteAt(whole, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Read(owner); err != nil {
		t.Errorf("the reader removed the record: %v", err)
	}
	if err := writer.Truncate(int64(len(whole) / 2)); err != nil {
		t.Fatal(err)
	}
	writer.Close() // killed
	if _, err := d.Read(owner); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half a record without its writer: %v", err)
	}
	reader, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(reader.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { _ = filelock.Close(reader) })
	if err := create(d, record(d, owner)); err != nil {
		t.Errorf("a useless record blocks the next ADD: %v", err)
	}
}

// TestDamagedRecordIsKept verifies that a damaged record hides no other one, stays until the next ADD, and that no special
// file in its place hinders anybody.
func TestDamagedRecordIsKept(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(path string) error{
		"torn":        func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
		"a FIFO":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"a socket": func(path string) error {
			return syscall.Mknod(path, syscall.S_IFSOCK|0o600, 0)
		},
		"a huge file": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
		},
		"a link to itself":  func(path string) error { return os.Symlink(path, path) },
		"a link to nowhere": func(path string) error { return os.Symlink("/nonexistent", path) },
	} {
		d, file, _ := finished(t)
		other := owner
		other.ContainerID = "c2"
		r := record(d, other)
		if err := errors.Join(create(d, r), d.Finish(r, 0), os.Remove(file), damage(file)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if list, err := d.List(""); err != nil || len(list) != 1 || list[0].Owner() != other {
				t.Errorf("%s: %v, %v", name, list, err)
			}
			if _, err := d.Read(owner); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: read: %v", name, err)
			}
			if _, got, err := d.Scan("net"); err != nil || len(got) != 1 || got[0] != (attach.Damaged{File: file, Owner: owner}) {
				t.Errorf("%s: damaged: %v", name, got)
			}
		}
		if _, err := d.TryTake(owner); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: take: %v", name, err)
		}
		if files := d.OtherBoots(); len(files) != 0 {
			t.Errorf("%s: of other boots: %v", name, files)
		}
		if err := create(d, record(d, owner)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, got, err := d.Scan(""); err != nil || len(got) != 0 {
			t.Errorf("%s: after an ADD: %v", name, got)
		}
	}
}

// TestUsable verifies that a state directory that no ADD could write is reported.
func TestUsable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink("nowhere", filepath.Join(dir, "dangling"))); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{dir, filepath.Join(dir, "a", "b")} {
		if err := attach.Open(root).Usable(); err != nil {
			t.Errorf("%s: %v", root, err)
		}
	}
	for _, root := range []string{file, filepath.Join(file, "below"), filepath.Join(dir, "dangling"), "/proc/1"} {
		if err := attach.Open(root).Usable(); err == nil {
			t.Errorf("%s is usable", root)
		}
	}
}
