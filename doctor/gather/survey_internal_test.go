package gather

import (
	"testing"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/inspect"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
)

// TestSurveyOfOneContainer checks that the attachments of one container share the state of its namespace. With 500
// attachments, a copy for each took 900 MB.
func TestSurveyOfOneContainer(t *testing.T) {
	t.Parallel()
	ns, err := netns.Open(kerneltest.Netns(t))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	e, err := kernel.Open(ns, kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	g := &gatherer{inside: map[netns.ID]*inspect.Survey{}}
	survey := func(file string) *inspect.Survey {
		t.Helper()
		s, err := g.survey(e, &attach.Record{NetnsID: file})
		if err != nil || s.Link("lo") == nil {
			t.Fatalf("survey: %v, %v", s, err)
		}
		return s
	}
	for _, x := range []struct {
		first, second string
		shared        bool
	}{{"4:1", "4:1", true}, {"4:1", "4:2", false}, {"", "", false}} {
		if a, b := survey(x.first), survey(x.second); (a == b) != x.shared {
			t.Errorf("the attachments of %q and %q: want a shared state: %v", x.first, x.second, x.shared)
		}
	}
}
