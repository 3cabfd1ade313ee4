package attach_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestLocksEndDespiteChild ends each lock while a process that is being started has copies of the open files. A process
// that runs plugins and starts others, such as a runtime, is often in that state.
func TestLocksEndDespiteChild(t *testing.T) {
	t.Parallel()
	take := func(d *attach.Dir) (func(), error) {
		r, err := d.TryTake(owner)
		return func() { r.Unlock() }, err
	}
	reserve := func(d *attach.Dir) (func(), error) {
		r, err := d.Reserve(owner)
		return func() { r.Free() }, err
	}
	list := func(d *attach.Dir) (func(), error) {
		ctx, cancel := context.WithTimeout(t.Context(), kerneltest.Slow(time.Second))
		defer cancel()
		return d.LockList(ctx, owner)
	}
	chain := func(d *attach.Dir) (func(), error) {
		ctx, cancel := context.WithTimeout(t.Context(), kerneltest.Slow(time.Second))
		defer cancel()
		return d.LockChain(ctx, owner)
	}
	port := func(d *attach.Dir) (func(), error) {
		ctx, cancel := context.WithTimeout(t.Context(), kerneltest.Slow(time.Second))
		defer cancel()
		return d.Claim(ctx, owner, []attach.Port{{Protocol: "tcp", HostPort: 80}})
	}
	after := func(lock func(*attach.Dir) (func(), error)) func(*attach.Dir) (func(), error) {
		return func(d *attach.Dir) (func(), error) {
			r := record(d, owner)
			if err := errors.Join(create(d, r), d.Finish(r, 0)); err != nil {
				return nil, err
			}
			return lock(d)
		}
	}
	for _, c := range []struct {
		name        string
		lock, again func(*attach.Dir) (unlock func(), err error)
	}{
		{"ADD", func(d *attach.Dir) (func(), error) {
			r := record(d, owner)
			return func() { must(t, d.Finish(r, 0)) }, create(d, r)
		}, take},
		{"DEL", after(take), take},
		{"GC", after(func(d *attach.Dir) (func(), error) {
			r, err := d.Read(owner)
			if err != nil {
				return nil, err
			}
			r, reservation, err := d.TakeForGC(r)
			return func() { r.Unlock(); reservation.Free() }, err
		}), take},
		{"repair", after(func(d *attach.Dir) (func(), error) { _, release, err := d.Hold(owner); return release, err }), take},
		{"reservation", reserve, reserve},
		{"list", list, list},
		{"chain", chain, chain},
		{"host port", port, port},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := attach.Open(dir + "/run")
			unlock, err := c.lock(d)
			if err != nil {
				t.Fatal(err)
			}
			kerneltest.CopyFiles(t, dir)
			unlock()
			unlock, err = c.again(d)
			if err != nil {
				t.Fatal(err)
			}
			unlock()
			if d.Reserved(owner) {
				t.Error("still reserved")
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// TestReserveContended reserves one attachment from many goroutines at once, each of which deletes the file and its
// directory again. Whoever does not get the reservation learns that it is taken.
func TestReserveContended(t *testing.T) {
	t.Parallel()
	d := attach.Open(t.TempDir())
	var group sync.WaitGroup
	for range 32 {
		group.Go(func() {
			for range 500 {
				r, err := d.Reserve(owner)
				if err != nil && !errors.Is(err, os.ErrExist) {
					t.Error(err)
					return
				}
				r.Free()
			}
		})
	}
	group.Wait()
}
