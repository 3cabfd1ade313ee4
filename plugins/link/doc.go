// Package link holds the plugins that give a container an interface, a file
// each: pure functions from configuration to the objects that should exist.
package link
