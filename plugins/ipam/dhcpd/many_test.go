package dhcpd

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dhcptest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// manyVariable sets how many leases TestManyLeases gets at once. A bridge has at most 1,023 ports, so the test uses two
// bridges, one with dnsmasq (for few leases) and one with Kea.
const manyVariable = "FAIRLEAD_LEASES"

// TestManyLeases gets many leases at once from one daemon. Each address must be unique. The test renews and releases
// all at the same time, and checks that no file stays open.
func TestManyLeases(t *testing.T) {
	count := 200
	if s := os.Getenv(manyVariable); s != "" {
		var err error
		if count, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	kerneltest.Host(t)
	a := dhcptest.New(t, "br0", "10.0.0.1/16")
	if count > 400 { // dnsmasq rewrites all its leases after each change
		a.Kea4(`"valid-lifetime": 3600, "subnet4": [{"subnet": "10.0.0.0/16", "pools": [{"pool": "10.0.1.0 - 10.0.200.0"}]}]`)
	} else {
		a.Dnsmasq("--dhcp-range=10.0.1.0,10.0.200.0,255.255.0.0,1h", "--quiet-dhcp")
	}
	b := dhcptest.New(t, "br1", "10.1.0.1/16")
	b.Kea4(`"valid-lifetime": 3600, "subnet4": [{"subnet": "10.1.0.0/16", "pools": [{"pool": "10.1.1.0 - 10.1.200.0"}]}]`)
	d := start(t, Options{ResendTimeout: 2 * time.Minute})
	d.o.Log = nil
	var all []Request
	began := time.Now()
	const each = 50 // interfaces per container, because namespaces are the slowest part of this test
	for len(all) < count {
		netns := kerneltest.Netns(t)
		for i := 0; i < each && len(all) < count; i++ {
			r := request(fmt.Sprintf("c%d", len(all)/each), netns, "")
			r.IfName = fmt.Sprintf("eth%d", i)
			all = append(all, r)
		}
		[]*dhcptest.Network{a, b}[len(all)/each%2].JoinAll(netns, "eth%d", each)
	}
	t.Logf("%d interfaces created in %v", count, time.Since(began))
	files := openFiles(t)

	began = time.Now()
	seen := sync.Map{}
	together(t, all, func(r Request) error {
		res, err := d.Allocate(context.Background(), r)
		if err == nil {
			if other, twice := seen.LoadOrStore(res.IPs[0].Address, r); twice {
				err = fmt.Errorf("%v and %v have the same address", r, other)
			}
		}
		return err
	})
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	t.Logf("%d leases got in %v; %d goroutines, %d KiB of memory in use", count, time.Since(began), runtime.NumGoroutine(), m.HeapInuse>>10)
	if now := openFiles(t); now > files+5 {
		t.Errorf("%d files were open before, %d are open while the leases are maintained", files, now)
	}

	began = time.Now()
	d.Close()
	d = start(t, Options{Leases: d.o.Leases})
	d.o.Log = nil
	if n := len(d.States()); n != count {
		t.Fatalf("%d leases of %d were continued", n, count)
	}
	t.Logf("continued by another daemon in %v", time.Since(began))

	began = time.Now()
	together(t, d.all(""), func(l *lease) error {
		p := l.protocols[0].(*v4)
		l.mu.Lock()
		p.Term.Renew = 0 // due now
		l.mu.Unlock()
		if err := l.runDue(l.ctx, p); err != nil {
			return err
		}
		if p.Term.Renew == 0 {
			return fmt.Errorf("%s was not renewed", l)
		}
		return nil
	})
	t.Logf("renewed in %v", time.Since(began))

	began = time.Now()
	together(t, all, func(r Request) error { return d.asCaller().Release(r.args(), nil) })
	t.Logf("released in %v", time.Since(began))
	d.Close()
	// Wait for dnsmasq to have no lease.
	kerneltest.Until(t, func() bool { return !strings.Contains(a.Leases(), "10.0.") })
	if now := openFiles(t); now > files+5 {
		t.Errorf("%d files were open before, %d are open afterwards", files, now)
	}
}

// together runs a function for all elements at the same time.
func together[T any](t *testing.T, all []T, do func(T) error) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make(chan error, len(all))
	for _, r := range all {
		wg.Go(func() { errs <- do(r) })
	}
	wg.Wait()
	close(errs)
	failed := 0
	for err := range errs {
		if err != nil {
			if failed++; failed < 4 {
				t.Error(err)
			}
		}
	}
	if failed > 0 {
		t.Fatalf("%d of %d failed", failed, len(all))
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
