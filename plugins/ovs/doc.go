// Package ovs has the plugin that connects containers to an Open vSwitch bridge. The client library for its database is
// slow to start, so the program fairlead serves this plugin, not fairlead-cni.
package ovs
