//go:build race

package cluster

// raced tells whether the tests run under the race detector.
const raced = true
