package builtin

import (
	"os"
	"path/filepath"
	"testing"
)

func TestIsOurs(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "bridge")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if !IsOurs(self) {
		t.Error("this test is a program of our module")
	}
	for _, other := range []string{"/bin/sh", "/nowhere", script} {
		if IsOurs(other) {
			t.Errorf("%s is not a program of our module", other)
		}
	}
}
