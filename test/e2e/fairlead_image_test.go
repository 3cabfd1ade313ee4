package e2e

import (
	"strings"
	"testing"
)

// TestFairleadImage checks that the image from "make image" runs under Podman and reports the program's version.
func TestFairleadImage(t *testing.T) {
	t.Parallel()
	p := build(t)
	copyRelease(t, p)
	removeParents(t)
	c := &podman{programs: p}
	h := startHost(t, c.binds())
	c.start(t, h)
	out := h.shell(t, "podman load --quiet --input /mnt/e2e/bin/fairlead-0.1.0-image.tar; podman run --rm --network none docker.io/fairlead/fairlead:latest version")
	if want := h.shell(t, "fairlead version"); !strings.HasSuffix(out, want) {
		t.Errorf("the image reports %q, the program %q", out, want)
	}
}
