// Package local is the plugins' half of the cluster's addresses: what the agent
// wrote for them to this host's disk, what they write for it, and the socket by which
// they ask it for what one node cannot decide. It is linked into fairlead-cni: no
// store, no package net.
package local

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/cni"
)

// Where this host's state lies; LibVariable and RunVariable in the environment name
// other roots, so that several hosts fit on one machine.
const (
	LibVariable = "FAIRLEAD_LIB"
	RunVariable = "FAIRLEAD_RUN"

	defaultLib = "/var/lib/cni"
	defaultRun = "/run/fairlead"
)

// Dir is the directory of this host's part of the cluster's addresses. What is in
// it must be the same for all configurations, so none says where it is.
type Dir struct {
	lib, run string
}

// Open is the directory below two roots; "": those of the environment, else the usual.
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

// Root is where all of it lies.
func (d Dir) Root() string { return filepath.Join(d.lib, "fairlead") }

// Addresses is where package ipam keeps who holds an address, for each network of
// the cluster a directory.
func (d Dir) Addresses() string { return filepath.Join(d.Root(), "addresses") }

// Socket is where the agent listens.
func (d Dir) Socket() string { return filepath.Join(d.run, "agent.sock") }

func (d Dir) networkFile(name string) string { return filepath.Join(d.Root(), name+".json") }

func (d Dir) coolingFile(name string) string { return filepath.Join(d.Root(), name+".cooling") }

func (d Dir) journal() string { return filepath.Join(d.Root(), "journal") }

// checkName refuses a network's name that is no file's.
func checkName(name string) error {
	if err := cni.ValidateNetworkName(name); err != nil {
		return fmt.Errorf("network of the cluster: %w", err)
	}
	return nil
}
