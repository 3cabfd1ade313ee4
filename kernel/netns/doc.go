// Package netns opens, enters, creates and lists network namespaces.
//
//   - netns.go: a handle of one namespace; create and remove a named one
//   - id.go: what a record stores to recognize a namespace
//   - namespaces.go: all namespaces of this machine
package netns
