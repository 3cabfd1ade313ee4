package main

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version [TYPE]", Short: "the version of fairlead, or those that a plugin speaks", GroupID: "look",
		Long: "Version prints the version of fairlead, and which versions of the CNI specification\n" +
			"it speaks. With TYPE it asks that plugin, found on CNI_PATH.",
		Example: "  fairlead version\n  fairlead version bridge",
		Args:    want(0, 1), ValidArgsFunction: a.completePlugins,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.ownVersion()
			}
			info, err := a.runtime(a.pluginPath()).GetVersionInfo(c.Context(), args[0])
			if err != nil {
				return err
			}
			path, err := invoke.FindInPath(args[0], a.pluginPath())
			if err != nil {
				return err
			}
			return a.pluginVersion(args[0], path, info.SupportedVersions)
		},
	}
}

func (a *app) ownVersion() error {
	if a.json {
		return a.printJSON(map[string]any{"version": cni.Release(), "cniVersions": cni.Versions(), "go": runtime.Version()})
	}
	_, err := fmt.Fprintf(a.stdout, "fairlead v%s (%s)\nCNI protocol versions supported: %s\n",
		cni.Release(), runtime.Version(), strings.Join(cni.Versions(), ", "))
	return err
}

func (a *app) pluginVersion(plugin, path string, versions []string) error {
	if a.json {
		return a.printJSON(map[string]any{"type": plugin, "path": path, "cniVersions": versions})
	}
	_, err := fmt.Fprintf(a.stdout, "%s (%s)\nCNI protocol versions supported: %s\n", plugin, path, strings.Join(versions, ", "))
	return err
}
