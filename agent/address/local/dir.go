// Package local is the plugins' side of the cluster's addresses. It reads the files that the agent writes for plugins,
// writes files for the agent, and calls the agent on its socket for what one node cannot decide. fairlead-cni links
// this package, so it uses neither the store nor package net.
package local

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/cni"
)

// Locations of this host's state. LibVariable and RunVariable in the environment set other roots, so that several hosts
// can share one machine.
const (
	LibVariable = "FAIRLEAD_LIB"
	RunVariable = "FAIRLEAD_RUN"

	defaultLib = "/var/lib/cni"
	defaultRun = "/run/fairlead"
)

// Dir is the directory with this host's part of the cluster's addresses. No network configuration sets it, because all
// configurations must share it.
type Dir struct {
	lib, run string
}

// Open returns the directory below two roots. An empty root means the environment's, or else the default.
func Open(lib, run string) Dir {
	return Dir{or(lib, LibVariable, defaultLib), or(run, RunVariable, defaultRun)}
}

func or(dir, variable, usual string) string {
	if dir == "" {
		dir = os.Getenv(variable)
	}
	if dir == "" {
		dir = usual
	}
	return dir
}

// Root returns the directory's path.
func (d Dir) Root() string { return filepath.Join(d.lib, "fairlead") }

// Addresses returns the directory where package ipam records the holders of addresses, with one directory per cluster
// network.
func (d Dir) Addresses() string { return filepath.Join(d.Root(), "addresses") }

// Socket returns the path of the agent's socket.
func (d Dir) Socket() string { return filepath.Join(d.run, "agent.sock") }

func (d Dir) networkFile(name string) string { return filepath.Join(d.Root(), name+".json") }

func (d Dir) coolingFile(name string) string { return filepath.Join(d.Root(), name+".cooling") }

func (d Dir) journal() string { return filepath.Join(d.Root(), "journal") }

// checkName rejects a network name that cannot be a file name.
func checkName(name string) error {
	if err := cni.ValidateNetworkName(name); err != nil {
		return fmt.Errorf("network of the cluster: %w", err)
	}
	return nil
}
