package gather

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/doctor"
	"github.com/fairlead/fairlead/kernel/inspect"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/libcni"
)

// TestNetworkNamespaceGone checks that a container whose isolated network has lost its namespace is a finding. "Nothing is
// wrong" would be the answer otherwise.
func TestNetworkNamespaceGone(t *testing.T) {
	t.Parallel()
	dir := attach.Open(t.TempDir())
	g := &gatherer{dir: dir, inside: map[netns.ID]*inspect.Survey{}, Options: Options{Runtime: libcni.NewCNIConfigWithCacheDir(nil, t.TempDir(), nil)}}
	container := kerneltest.Netns(t)
	for host, want := range map[string]string{kerneltest.Netns(t): "", "/run/netns/fairlead-never-made": "network-namespace-gone", t.TempDir(): "network-namespace-gone"} {
		r := dir.New("blue", "c1", "eth0", container)
		r.Host, r.Parts = host, []attach.Part{{Plugin: "ptp", Done: true}}
		got := ""
		for _, f := range doctor.Examine(&doctor.Facts{Attachments: []*doctor.Attachment{g.attachment(t.Context(), r)}}) {
			got += f.Name
			if !strings.Contains(f.Problem, host) {
				t.Errorf("%q does not name %s", f.Problem, host)
			}
		}
		if got != want || len(g.unseen) > 0 {
			t.Errorf("%s: got %q, not examined %q, want %q", host, got, g.unseen, want)
		}
	}
}
