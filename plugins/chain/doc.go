// Package chain holds the plugins that work on what others of their list made:
// they make no link and ask no IPAM. A file each, or a few that share its name.
package chain
