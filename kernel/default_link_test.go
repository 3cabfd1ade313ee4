package kernel_test

import (
	"errors"
	"os"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestDefaultLink checks that an unreachable default route, which IPv6 lists with the link lo, is nobody's link.
func TestDefaultLink(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	kerneltest.Run(t, "ip", "link", "set", "lo", "up")
	kerneltest.Run(t, "ip", "link", "add", "dev0", "up", "type", "veth", "peer", "name", "dev1")
	kerneltest.Run(t, "ip", "link", "set", "dev1", "up")
	kerneltest.Run(t, "ip", "-6", "route", "add", "unreachable", "default", "metric", "100")
	e := open(t, "", kernel.Options{})
	if l, err := e.DefaultLink(kernel.Host); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("only unreachable: %q, %v", l, err)
	}
	kerneltest.Run(t, "ip", "-6", "route", "add", "default", "dev", "dev0", "metric", "1024")
	if l, err := e.DefaultLink(kernel.Host); l != "dev0" || err != nil {
		t.Errorf("with another: %q, %v", l, err)
	}
}

// TestUnreadableRoutes checks that an error of the list of routes is not taken for a host without a default route. A
// closed socket stands in for one that the kernel does not answer.
func TestUnreadableRoutes(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	e, err := kernel.Open(nil, kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
	if l, err := e.DefaultLink(kernel.Host); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("default link %q, %v, want the socket's error", l, err)
	}
	if links, err := e.Uplinks(); err == nil {
		t.Errorf("uplinks %v, want the socket's error", links)
	}
}
