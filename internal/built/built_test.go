package built

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestInstall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var wait sync.WaitGroup
	for range 4 { // one process builds, and all get it
		wait.Go(func() {
			err := install(dir, "tool", func(temp string) *exec.Cmd {
				return exec.Command("sh", "-c", `echo built >>"$1/count"; echo whole >"$2/tool"`, "sh", dir, temp)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	count, err := os.ReadFile(filepath.Join(dir, "count"))
	if err != nil || string(count) != "built\n" {
		t.Errorf("built: %q, %v", count, err)
	}
	if tool, err := os.ReadFile(filepath.Join(dir, "tool")); err != nil || string(tool) != "whole\n" {
		t.Errorf("the program: %q, %v", tool, err)
	}
}

func TestInstallUnknown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	err := install(dir, "none", Install("github.com/fairlead/none@v1.0.0", ""))
	if err == nil || !strings.Contains(err.Error(), "none@v1.0.0") {
		t.Errorf("installing a program that is not there: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".build*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
