package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// TestConcurrentAdds runs several commands that attach one container. One succeeds. A refused one does not remove the
// attachment of that one.
func TestConcurrentAdds(t *testing.T) {
	t.Parallel()
	s := newSiteOf(t, siteNetwork)
	s.sh("ip netns add one")
	for range 10 {
		var adds [4]*exec.Cmd
		var errs [4]bytes.Buffer
		for i := range adds {
			adds[i] = exec.Command("fairlead", "add", "n", "one")
			adds[i].Env, adds[i].Stderr = s.env, &errs[i]
			must(t, adds[i].Start())
		}
		succeeded := 0
		for i, cmd := range adds {
			switch err := cmd.Wait(); {
			case err == nil:
				succeeded++
			case !strings.Contains(errs[i].String(), "is already attached"):
				t.Errorf("a refused ADD: %s", &errs[i])
			}
		}
		if succeeded != 1 {
			t.Errorf("%d of %d ADDs succeeded", succeeded, len(adds))
		}
		s.ok("check", "n", "one")
		s.ok("del", "n", "one")
		s.noRecords()
	}
}
