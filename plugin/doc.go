// Package plugin turns desired state into a CNI plugin. An author declares the objects that should exist in pure
// functions, and gets ADD with undo, CHECK, DEL, GC, STATUS and plan from the same list. See docs/writing-a-plugin.md.
package plugin
