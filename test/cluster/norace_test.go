//go:build !race

package cluster

// raced reports whether the tests run under the race detector.
const raced = false
