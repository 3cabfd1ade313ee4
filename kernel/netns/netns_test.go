package netns_test

import (
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
)

// TestPanicInNamespace recovers from a panic in another namespace. The thread is in its own namespace again.
func TestPanicInNamespace(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	own, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	other, err := netns.Open(kerneltest.Netns(t))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is lost")
			}
		}()
		_ = other.Do(func() error { panic("in the container") })
	}()
	now, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	if !now.SameAs(own) {
		t.Error("the thread is in another namespace")
	}
}

// BenchmarkDo compares Do with a thread that ends with the call.
func BenchmarkDo(b *testing.B) {
	kerneltest.Host(b)
	n, err := netns.Open(kerneltest.Netns(b))
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	empty := func() error { return nil }
	for what, call := range map[string]func() error{
		"returns":    func() error { return n.Do(empty) },
		"own thread": func() error { return netns.OnOwnThread(func() error { return n.Do(empty) }) },
	} {
		b.Run(what, func(b *testing.B) {
			for range b.N {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
