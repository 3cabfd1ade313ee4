// Package invoke finds and runs plugins, for runtimes and for plugins that delegate to others.
package invoke

import (
	"context"
	"os"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
)

// Exec runs plugins. RawExec runs them as processes.
type Exec interface {
	// ExecPlugin returns what the plugin printed. The plugin's own error is a *cni.Error.
	ExecPlugin(ctx context.Context, pluginPath string, stdinData []byte, environ []string) ([]byte, error)
	FindInPath(plugin string, paths []string) (string, error)
	// Decode decodes the answer to VERSION.
	Decode(jsonBytes []byte) (PluginInfo, error)
}

// PluginInfo is a plugin's answer to VERSION.
type PluginInfo struct {
	CNIVersion        string
	SupportedVersions []string
}

// ExecPluginWithResult runs a plugin that returns a result. A result without a version is in the configuration's.
func ExecPluginWithResult(ctx context.Context, pluginPath string, netconf []byte, args CNIArgs, exec Exec) (*cni.Result, error) {
	out, err := orDefault(exec).ExecPlugin(ctx, pluginPath, netconf, args.AsEnv())
	if err != nil {
		return nil, err
	}
	conf, err := rawjson.ParseObject(netconf)
	if err != nil {
		return nil, cni.Invalid(netconf, "", "want an object")
	}
	return DecodeResult(conf.String("cniVersion"), pluginPath, out)
}

// ExecPluginWithoutResult runs a plugin that returns success or an error.
func ExecPluginWithoutResult(ctx context.Context, pluginPath string, netconf []byte, args CNIArgs, exec Exec) error {
	_, err := orDefault(exec).ExecPlugin(ctx, pluginPath, netconf, args.AsEnv())
	return err
}

// GetVersionInfo asks a plugin which versions it supports.
func GetVersionInfo(ctx context.Context, pluginPath string, exec Exec) (PluginInfo, error) {
	// Plugins built with an old skel need these variables even for VERSION.
	args := &Args{Command: "VERSION", NetNS: "dummy", IfName: "dummy", Path: "dummy"}
	stdin := []byte(`{"cniVersion":"` + cni.Current + `"}`)
	out, err := orDefault(exec).ExecPlugin(ctx, pluginPath, stdin, args.AsEnv())
	if err != nil {
		if e := cni.AsError(err); e.Msg == "unknown CNI_COMMAND: VERSION" {
			return PluginInfo{CNIVersion: "0.1.0", SupportedVersions: []string{"0.1.0"}}, nil
		}
		return PluginInfo{}, err
	}
	return orDefault(exec).Decode(out)
}

func orDefault(exec Exec) Exec {
	if exec == nil {
		return &RawExec{Stderr: os.Stderr}
	}
	return exec
}
