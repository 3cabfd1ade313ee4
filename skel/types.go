// Package skel is the plugin's side of the CNI protocol: environment, standard input and output, versions and errors.
// It is for plugins that handle each operation themselves.
package skel

import (
	"context"

	"github.com/fairlead/fairlead/cni"
)

// CmdArgs has the CNI_* variables and standard input of one call.
type CmdArgs struct {
	ContainerID   string // CNI_CONTAINERID
	Netns         string // CNI_NETNS: path; may be "" on DEL
	IfName        string // CNI_IFNAME
	Args          string // CNI_ARGS, unparsed
	Path          string // CNI_PATH
	NetnsOverride string // CNI_NETNS_OVERRIDE
	StdinData     []byte // the configuration
}

// CNIFuncs are the operations of a plugin. A nil function returns an error that says it is not supported; a nil GC or
// Status succeeds.
type CNIFuncs struct {
	// Add returns the result, which the caller encodes in the configuration's version. If the result cannot be
	// delivered, Del is called.
	Add    func(context.Context, *CmdArgs) (*cni.Result, error)
	Check  func(context.Context, *CmdArgs) error
	Del    func(context.Context, *CmdArgs) error
	GC     func(context.Context, *CmdArgs) error
	Status func(context.Context, *CmdArgs) error
}

// Plugin is a plugin that can run as a process or inside another program.
type Plugin struct {
	Name     string   // the "type" in configurations
	About    string   // what it does, in one sentence
	Version  string   // its own version, such as "1.2.3", for a person who starts it manually; "": it prints none
	Versions []string // nil: every version of package cni
	// AnyNetns is for a plugin that never enters the namespace, such as an IPAM plugin: CNI_NETNS need not be a
	// namespace.
	AnyNetns bool
	Funcs    CNIFuncs
}
