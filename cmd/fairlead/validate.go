package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/netconf"
	"github.com/fairlead/fairlead/validate"
)

func (a *app) validateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "validate [FILE|DIRECTORY|-...]", Short: "find everything that is wrong in network configurations", GroupID: "look",
		Long: "Validate reads network configurations (.conflist, .conf, .json) with their drop-in files, and\n" +
			"prints every problem as FILE:LINE:COLUMN: KEY = VALUE: what is allowed. It warns of a plugin\n" +
			"that is not on CNI_PATH, of networks that give the same addresses on one bridge, and of an\n" +
			"unknown key that resembles a known one. Without an argument it reads NETCONFPATH; - is standard\n" +
			"input. Exit code 3: a configuration is not valid.",
		Example: "  fairlead validate /etc/cni/net.d/10-my-network.conflist\n  fairlead validate --json examples/*.conf*\n  jq .network pod.json | fairlead validate -",
		Args:    want(0, -1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{a.confDir()}
			}
			var all []validate.Report
			if slices.Contains(args, validate.Input) {
				data, err := a.fileOrInput(validate.Input)
				if err != nil {
					return err
				}
				all = append(all, validate.Data(data, a.runtimePluginPath()))
				args = slices.DeleteFunc(args, func(arg string) bool { return arg == validate.Input })
			}
			files, err := netconf.Files(args)
			if err != nil {
				return a.explain(err, a.confDir())
			}
			all = append(all, validate.Files(files, a.runtimePluginPath())...)
			err = a.printDataOr(all, validate.Text(all))
			if err == nil && slices.ContainsFunc(all, func(r validate.Report) bool { return !r.OK }) {
				return silentError{exitInvalid}
			}
			return err
		},
	}
}
