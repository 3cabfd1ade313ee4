// Package link holds the plugins that create a container's interface, one file each: pure functions from configuration
// to the objects that should exist.
package link
