package cni

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Current is the newest supported version of the specification.
const Current = "1.1.0"

// ReferenceVersion is the version of the reference plugins (containernetworking/plugins) whose behaviour Fairlead keeps.
const ReferenceVersion = "1.10.0"

// version is set at link time in a release: -X github.com/fairlead/fairlead/cni.version=0.2.0.
var version = "0.1.0-dev"

// Version returns Fairlead's own version, a semantic version such as "0.1.0".
func Version() string { return version }

// Release returns the version that plugins report in their about line: the version of the reference plugins that they
// replace, with Fairlead's own as build metadata, such as "1.10.0+fairlead.0.1.0". Clients read it as a semantic version
// and compare it with the reference plugins' versions.
func Release() string { return ReferenceVersion + "+fairlead." + version }

// Versions returns the supported versions, oldest first.
func Versions() []string {
	return []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", Current}
}

// Known reports whether a version is supported.
func Known(version string) bool { return slices.Contains(Versions(), version) }

// CheckVersion returns an error if ADD rejects the version of a configuration.
func CheckVersion(data []byte, version string) error {
	if version == "" || Known(version) {
		return nil
	}
	return Invalid(data, "cniVersion", "ADD rejects this version: want one of "+strings.Join(Versions(), ", "))
}

// Negotiate returns the version of a list with these values of cniVersion and cniVersions: the highest supported one,
// or 0.1.0 for a list without a version. An error is a *ConfigError with the position in data, the list.
func Negotiate(data []byte, version string, versions []string) (string, error) {
	if _, err := ParseVersion(version); err != nil {
		return "", Invalid(data, "cniVersion", err.Error())
	}
	best := ""
	for i, v := range append(slices.Clone(versions), version) {
		if _, err := ParseVersion(v); err != nil || v == "" && i < len(versions) {
			return "", Invalid(data, fmt.Sprintf("cniVersions[%d]", i), fmt.Sprintf("want a version, like %q", Current))
		}
		if Known(v) && (best == "" || CompareVersions(v, best) > 0) {
			best = v
		}
	}
	switch {
	case best != "":
		return best, nil
	case len(versions) > 0:
		return "", Invalid(data, "cniVersions", fmt.Sprintf("none of them is supported: want one of %q", Versions()))
	case version == "":
		return "0.1.0", nil
	}
	return version, nil // the plugins report whether they support it
}

// AtLeast reports whether version is min or newer. A version that is not three numbers is older than all others.
func AtLeast(version, min string) bool { return CompareVersions(version, min) >= 0 }

// CompareVersions compares two versions numerically: -1, 0 or 1.
func CompareVersions(a, b string) int {
	x, _ := ParseVersion(a)
	y, _ := ParseVersion(b)
	return slices.Compare(x[:], y[:])
}

// ParseVersion parses "major.minor.micro", "major.minor" or "major". "" is 0.1.0: the first specification had no such
// key.
func ParseVersion(version string) ([3]int, error) {
	if version == "" {
		return [3]int{0, 1, 0}, nil
	}
	parts := strings.Split(version, ".")
	if len(parts) > 3 {
		return [3]int{-1}, fmt.Errorf("invalid version %q: want three numbers, like %s", version, Current)
	}
	var v [3]int
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 {
			return [3]int{-1}, fmt.Errorf("invalid version %q: want three numbers, like %s", version, Current)
		}
		v[i] = n
	}
	return v, nil
}
