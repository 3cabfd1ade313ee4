package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version [TYPE]", Short: "show the version of fairlead, or the versions that a plugin supports", GroupID: "look",
		Long: "Version prints the version of fairlead and the versions of the CNI specification that it\n" +
			"supports. With TYPE it asks that plugin, which it searches on CNI_PATH.",
		Example: "  fairlead version\n  fairlead version bridge",
		Args:    want(0, 1), ValidArgsFunction: a.completePlugins,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.printOwnVersion()
			}
			info, err := a.runtime(a.pluginPath()).GetVersionInfo(c.Context(), args[0])
			if err != nil {
				return err
			}
			path, err := invoke.FindInPath(args[0], a.pluginPath())
			if err != nil {
				return err
			}
			return a.printDataOr(map[string]any{"type": args[0], "path": path, "cniVersions": info.SupportedVersions},
				fmt.Sprintf("%s (%s)\nCNI protocol versions supported: %s\n", args[0], path, join(info.SupportedVersions)))
		},
	}
}

func (a *app) printOwnVersion() error {
	return a.printDataOr(map[string]any{"version": cni.Version(), "plugins": cni.Release(), "cniVersions": cni.Versions(), "go": runtime.Version()},
		fmt.Sprintf("fairlead %s (plugins %s, %s)\nCNI protocol versions supported: %s\n", cni.Version(), cni.Release(), runtime.Version(), join(cni.Versions())))
}
