// Package skel is the plugin's side of the protocol for a plugin written by
// hand: environment, standard input and output, versions and errors.
package skel

import (
	"context"

	"github.com/fairlead/fairlead/cni"
)

// CmdArgs is what a runtime hands to a plugin: the CNI_* variables and standard input.
type CmdArgs struct {
	ContainerID   string // CNI_CONTAINERID
	Netns         string // CNI_NETNS: path; may be "" on DEL
	IfName        string // CNI_IFNAME
	Args          string // CNI_ARGS, as given
	Path          string // CNI_PATH
	NetnsOverride string // CNI_NETNS_OVERRIDE
	StdinData     []byte // the configuration
}

// CNIFuncs are the operations of a plugin. A nil one answers with an error that
// says the plugin does not serve it, GC and STATUS with success.
type CNIFuncs struct {
	// Add returns the result; it is encoded to the configuration's version by
	// the caller. If the result cannot be delivered Del is called.
	Add    func(context.Context, *CmdArgs) (*cni.Result, error)
	Check  func(context.Context, *CmdArgs) error
	Del    func(context.Context, *CmdArgs) error
	GC     func(context.Context, *CmdArgs) error
	Status func(context.Context, *CmdArgs) error
}

// Plugin is a plugin that can run as a process or inside another.
type Plugin struct {
	Name     string   // the type by which configurations ask for it
	About    string   // what it does, in one sentence
	Versions []string // nil: every version of package cni
	// AnyNetns is for a plugin that never enters the namespace, as those for
	// IPAM: CNI_NETNS need not lead to one.
	AnyNetns bool
	Funcs    CNIFuncs
}
