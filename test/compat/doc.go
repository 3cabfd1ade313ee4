// Package compat tests that Fairlead and the reference implementation are interchangeable. The reference runtime runs
// our plugins and our runtime the reference plugins, for every version of the specification. Every configuration key
// has the same effect. The tests write docs/compatibility.md.
package compat
