// Package plugin turns wanted state into a CNI plugin: an author says in pure
// functions which objects should exist, and gets ADD with undo, CHECK, DEL,
// GC, STATUS and plan from the same list. See docs/writing-a-plugin.md.
package plugin
