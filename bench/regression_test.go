package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func buildOurs(t *testing.T) string {
	dir := t.TempDir()
	for out, pkg := range map[string]string{"fairlead-cni": "../cmd/fairlead-cni"} {
		if err := compile(".", filepath.Join(dir, out), pkg); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "ours"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := linkOurs(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTry(t *testing.T) {
	dir := buildOurs(t)
	for _, c := range cases(true) {
		if slices.Contains([]string{plainName, masqNFTName, chainName, "bridge, portmap", heldBy(0)}, c.name) && c.group != groupStanding {
			for verb, calls := range countCase(t, dir, c) {
				t.Log(c.name, verb, total(calls), calls)
			}
		}
	}
}
