package plugin

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

func openFacts(t *testing.T) facts {
	t.Helper()
	s := newSession(context.Background(), t.TempDir())
	t.Cleanup(s.close)
	if err := s.begin(kerneltest.Netns(t), true); err != nil {
		t.Fatal(err)
	}
	return facts{s}
}

// TestQuestionAfterFailedObject asks about all links or routes while an object is pending that cannot be applied. An
// answer without the error would describe a state that no plugin wants.
func TestQuestionAfterFailedObject(t *testing.T) {
	t.Parallel()
	questions := map[string]func(facts) error{
		"links":        func(f facts) error { _, err := f.Links(kernel.Container); return err },
		"routes":       func(f facts) error { _, err := f.Routes(kernel.Container, kernel.IPv4, 0); return err },
		"default link": func(f facts) error { _, err := f.DefaultLink(kernel.Host); return err },
	}
	for name, ask := range questions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kerneltest.Host(t)
			f := openFacts(t)
			missing := &kernel.Addr{In: kernel.Container, Link: "missing0", Prefix: netip.MustParsePrefix("10.1.0.5/24")}
			f.pending = append(f.pending, pendingObject{missing, &job{}})
			if err := ask(f); err == nil {
				t.Error("a pending address on a missing link: no error")
			}
		})
	}
}

// TestUplinks checks that only a default route from a router advertisement makes a link an uplink.
func TestUplinks(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	for _, name := range []string{"static0", "subnet0", "up0"} {
		kerneltest.Run(t, "ip", "link", "add", name, "type", "bridge")
		kerneltest.Run(t, "ip", "link", "set", name, "up")
	}
	kerneltest.Run(t, "ip", "-6", "route", "add", "default", "via", "fe80::1", "dev", "static0", "metric", "512")
	kerneltest.Run(t, "ip", "-6", "route", "add", "2001:db8::/64", "dev", "subnet0", "proto", "ra")
	f := openFacts(t)
	if got, err := f.Uplinks(); err != nil || len(got) != 0 {
		t.Errorf("uplinks without a router: %v, %v", got, err)
	}
	kerneltest.Run(t, "ip", "-6", "route", "add", "default", "via", "fe80::2", "dev", "up0", "proto", "ra")
	if got, err := f.Uplinks(); err != nil || !slices.Equal(got, []string{"up0"}) {
		t.Errorf("uplinks %v, %v, want up0", got, err)
	}
}
