package main

import "testing"

func TestReleaseTag(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{"0.2.0": "0.2.0", "0.2.0-rc.1": "0.2.0-rc.1", "0.2.0-beta2": "0.2.0-beta2", "0.1.0-dev": "", "0.1.0-dev.4300": "", "0.2.0+x": "", "": ""} {
		if got := releaseTag(version); got != want {
			t.Errorf("releaseTag(%q) is %q, want %q", version, got, want)
		}
	}
}
