package attach_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/wire"
	"github.com/fairlead/fairlead/kernel"
)

// listed returns the objects as words.
func listed(list kernel.Objects) string {
	var out []string
	for _, o := range list {
		out = append(out, o.String())
	}
	return strings.Join(out, ", ")
}

// TestExpected checks which objects of a list of plugins a CHECK of one of them expects.
func TestExpected(t *testing.T) {
	t.Parallel()
	d := attach.Open(t.TempDir())
	r := d.New("net", "c1", "eth0", "/proc/self/ns/net")
	part := func(plugin, conf string, list ...kernel.Object) {
		r.Parts = append(r.Parts, attach.Part{Plugin: plugin, Conf: conf, Objects: attach.LazyOf(kernel.Objects(list))})
	}
	part("bridge", "b1", &kernel.Up{Link: "eth0"})
	part("tuning", "t1", &kernel.LinkAttrs{Link: "eth0", Set: kernel.LinkSettings{MTU: 1400}}, &kernel.Sysctl{Key: "net/core/somaxconn", Value: "500"})
	part("tuning", "t2", &kernel.LinkAttrs{Link: "eth0", Set: kernel.LinkSettings{MTU: 1300}})
	const up, more, least = "ip link set eth0 up", "ip link set eth0 mtu 1400, sysctl -w net.core.somaxconn=500", "ip link set eth0 mtu 1300"
	check := func(r *attach.Record) {
		t.Helper()
		for _, c := range []struct {
			plugin, conf string
			same         bool
			own, later   string
		}{
			{"bridge", "b1", true, up, more + ", " + least},
			{"tuning", "t1", true, more, least},
			{"tuning", "t2", true, least, ""},
			{"tuning", "changed", false, more + ", " + least, ""},
			{"tuning", "", false, more + ", " + least, ""},
			{"portmap", "p1", false, "", ""},
		} {
			own, later, same, err := r.Expected(c.plugin, c.conf)
			if err != nil || same != c.same || listed(own) != c.own || listed(later) != c.later {
				t.Errorf("%s %s: %q, then %q, %v, %v", c.plugin, c.conf, listed(own), listed(later), same, err)
			}
		}
		if list, err := r.Objects(); err != nil || listed(list) != up+", "+more+", "+least {
			t.Errorf("all: %q, %v", listed(list), err)
		}
	}
	check(r)
	if err := create(d, r); err != nil {
		t.Fatal(err)
	}
	read, err := d.Read(r.Owner()) // objects that are read and not decoded yet
	if err != nil {
		t.Fatal(err)
	}
	check(read)
}

// TestRoutesChangedByOthers checks which routes CHECK ignores when another project's plugin has changed the result's routes.
func TestRoutesChangedByOthers(t *testing.T) {
	t.Parallel()
	result := func(routes string) *cni.Result {
		r, err := wire.Decode("1.0.0", []byte(`{"cniVersion":"1.0.0","routes":[`+routes+`]}`))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	const all = `{"dst":"0.0.0.0/0"},{"dst":"10.8.0.0/16","gw":"10.1.0.1"},{"dst":"10.9.0.0/16","gw":"0.0.0.0"}`
	gw := netip.MustParseAddr("10.1.0.1")
	var r attach.Record
	r.Parts = []attach.Part{{Plugin: "bridge", Result: attach.LazyOf(result(all)), Objects: attach.LazyOf(kernel.Objects{
		&kernel.Route{In: kernel.Container, Link: "eth0", Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: gw},
		&kernel.Route{In: kernel.Container, Link: "eth0", Dst: netip.MustParsePrefix("10.8.0.0/16"), Via: gw},
		&kernel.Route{In: kernel.Container, Link: "eth0", Dst: netip.MustParsePrefix("10.9.0.0/16")},
		&kernel.Route{In: kernel.Container, Link: "eth0", Dst: netip.MustParsePrefix("10.7.0.0/16")}, // not of the result
		&kernel.Route{Link: "veth1", Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: gw},               // of the host
	})}}
	const all3 = "ip route del default via 10.1.0.1 dev eth0, ip route del 10.8.0.0/16 via 10.1.0.1 dev eth0, ip route del 10.9.0.0/16 dev eth0"
	for final, want := range map[string]string{
		all: "",
		"":  all3,
		`{"dst":"0.0.0.0/0","gw":"10.1.0.1"},{"dst":"10.8.0.0/16"},{"dst":"10.9.0.0/16"}`:                                "",
		`{"dst":"0.0.0.0/0","gw":"10.1.0.9"},{"dst":"10.8.0.0/16","gw":"0.0.0.0"},{"dst":"10.9.0.0/16","gw":"10.1.0.1"}`: all3,
		`{"dst":"10.8.0.0/16","gw":"10.1.0.1"},{"dst":"10.9.0.0/16"}`:                                                    "ip route del default via 10.1.0.1 dev eth0",
	} {
		if got := listed(r.ChangedByOthers(result(final))); got != want {
			t.Errorf("%s: %q, want %q", final, got, want)
		}
	}
	if got := r.ChangedByOthers(nil); got != nil {
		t.Errorf("without a final result: %v", got)
	}
}

// TestExpectedUnknownObjects checks that objects of another version are an error, not an empty list.
func TestExpectedUnknownObjects(t *testing.T) {
	t.Parallel()
	const known, unknown = `{"plugin":"bridge","conf":"b","objects":[{"kind":"up","object":{"Link":"eth0"}}]}`, `{"plugin":"new","conf":"n","objects":[{"kind":"new","object":{}}]}`
	for _, parts := range []string{known + "," + unknown, unknown + "," + known, unknown} {
		var r attach.Record
		if err := cni.Decode([]byte(`{"parts":[`+parts+`]}`), &r); err != nil {
			t.Fatal(err)
		}
		if list, err := r.Objects(); err == nil {
			t.Errorf("%s: %v", parts, list)
		}
		if _, _, _, err := r.Expected("new", "n"); err == nil {
			t.Errorf("%s: no error", parts)
		}
	}
}

// TestSeizeRemoved checks that a listed attachment that was removed since is left alone.
func TestSeizeRemoved(t *testing.T) {
	t.Parallel()
	d := attach.Open(t.TempDir())
	r := record(d, owner)
	if err := errors.Join(create(d, r), d.Finish(r, 0), d.Remove(owner)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.TakeForGC(r); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if d.Reserved(owner) {
		t.Error("it is still reserved")
	}
}

// TestReserveBelowFile checks the error if a directory of the state is a file.
func TestReserveBelowFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "run")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	nowhere := filepath.Join(t.TempDir(), "run")
	if err := errors.Join(os.MkdirAll(nowhere+"/attach", 0o700), os.Symlink("nowhere", nowhere+"/attach/net")); err != nil {
		t.Fatal(err)
	}
	for _, lock := range []func(*attach.Dir) error{
		func(d *attach.Dir) error { _, err := d.Reserve(owner); return err },
		func(d *attach.Dir) error { _, err := d.LockList(t.Context(), owner); return err },
	} {
		if err := lock(attach.Open(file)); err == nil || !strings.Contains(err.Error(), "not a directory") {
			t.Errorf("got %v", err)
		}
		if err := lock(attach.Open(nowhere)); err == nil || !strings.Contains(err.Error(), "mkdir") {
			t.Errorf("a link that leads nowhere: %v", err)
		}
	}
}
