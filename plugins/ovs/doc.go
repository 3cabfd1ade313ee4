// Package ovs has the plugin that joins containers by a bridge of Open vSwitch.
// The library that speaks with its database is slow to start, so the plugin is
// served by the program fairlead, not by the one of all other plugins.
package ovs
