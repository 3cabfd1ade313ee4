package kernel_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestLinkByAltName finds a link by its alternative names, of which one is longer than a name can be.
func TestLinkByAltName(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	long := strings.Repeat("enp193s0f0np0d1", 8) // 120 bytes
	kerneltest.Run(t, "ip", "link", "add", "dev0", "type", "veth", "peer", "name", "dev1")
	kerneltest.Run(t, "ip", "link", "property", "add", "dev", "dev0", "altname", "alt0", "altname", long)
	e := open(t, "", kernel.Options{})
	for _, name := range []string{"dev0", "alt0", long} {
		if l, err := e.Link(kernel.Host, name); err != nil || l.Name != "dev0" {
			t.Errorf("%s: %v, %v", name, l, err)
		}
	}
	if _, err := e.Link(kernel.Host, "enp193s0f0np0d1x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("unknown name of 16 bytes: %v", err)
	}
}
