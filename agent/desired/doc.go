// Package desired computes the kernel objects that a node should have from a snapshot of the store. Its functions are pure.
package desired
