// Package compat proves that Fairlead and the reference implementation can take
// each other's place: the reference runtime drives our plugins and our runtime
// the reference plugins, for every version of the specification, and every
// configuration key means the same. Its tests write docs/compatibility.md.
package compat
