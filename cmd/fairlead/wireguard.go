package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/backend/wgd"
)

// wireguardCommand is the process that the agent starts if the kernel has no WireGuard: a link in user space.
func (a *app) wireguardCommand() *cobra.Command {
	return &cobra.Command{
		Use: wgd.Command + " LINK SOCKET", Hidden: true, Args: want(2, 2),
		Short: "run a WireGuard link in user space until it is deleted; the agent starts this",
		RunE:  func(c *cobra.Command, args []string) error { return wgd.Run(c.Context(), args[0], args[1]) },
	}
}
