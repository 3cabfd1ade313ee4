// Package chain holds the chained plugins, which work on what earlier plugins of the list created. They create no
// interface for the container and call no IPAM. Each has one file, or a few with its name as prefix.
package chain
