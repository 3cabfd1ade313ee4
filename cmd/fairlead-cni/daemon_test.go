package main

import (
	"slices"
	"strings"
	"testing"
)

func TestDaemonArgs(t *testing.T) {
	t.Parallel()
	for argv, want := range map[string]string{
		"dhcp daemon":                    "fairlead dhcp-daemon",
		"/opt/cni/bin/dhcp daemon":       "fairlead dhcp-daemon",
		"bin/fairlead-cni dhcp daemon":   "fairlead dhcp-daemon",
		"dhcp daemon -socketpath /s -h":  "fairlead dhcp-daemon --socketpath /s -h",
		"dhcp daemon -timeout=1s --json": "fairlead dhcp-daemon --timeout=1s --json",
		"dhcp":                           "",
		"dhcp status":                    "",
		"bridge daemon":                  "",
		"fairlead-cni bridge daemon":     "",
		"fairlead-cni dhcp":              "",
		"fairlead-cni":                   "",
	} {
		got, ok := daemonArgs(strings.Fields(argv))
		if ok != (want != "") || !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %q, %v", argv, got, ok)
		}
	}
}

// TestDaemonWithoutFairlead verifies that the error names the directories without the program fairlead.
func TestDaemonWithoutFairlead(t *testing.T) {
	t.Parallel()
	out, code := program(t, "PATH="+t.TempDir(), "dhcp", "daemon")
	if code != 1 || !strings.Contains(out, "the DHCP daemon is in the program fairlead, which is neither in ") {
		t.Errorf("exit code %d, %s", code, out)
	}
}
