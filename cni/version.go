package cni

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Current is the newest version of the specification spoken here.
const Current = "1.1.0"

// Release is the version of the reference plugins whose behaviour is kept, and
// behind "+fairlead." our own. Clients read it as a semantic version.
const Release = "1.9.1+fairlead.0.1.0"

// Versions returns every version spoken, oldest first.
func Versions() []string {
	return []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", Current}
}

// Known tells whether a version is spoken.
func Known(version string) bool { return slices.Contains(Versions(), version) }

// AtLeast tells whether version is min or newer. A version that is not three
// numbers is older than all.
func AtLeast(version, min string) bool { return CompareVersions(version, min) >= 0 }

// CompareVersions orders two versions as numbers: -1, 0 or 1.
func CompareVersions(a, b string) int {
	x, _ := ParseVersion(a)
	y, _ := ParseVersion(b)
	return slices.Compare(x[:], y[:])
}

// ParseVersion reads "major.minor.micro", "major.minor" or "major". The absent
// version is 0.1.0: the specification's first had no such key.
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
