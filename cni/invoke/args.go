package invoke

import (
	"os"
	"slices"
	"strings"
)

// CNIArgs returns a plugin's environment.
type CNIArgs interface {
	// AsEnv returns the whole environment, each KEY=VALUE.
	AsEnv() []string
}

// ListedVariable tells the plugins of a GC when the runtime made its list of valid attachments, in nanoseconds of Unix
// time: later attachments are not in the list. It is not part of the specification.
const ListedVariable = "FAIRLEAD_GC_LISTED"

// Args are the variables of one call.
type Args struct {
	Command       string
	ContainerID   string
	NetNS         string // path
	PluginArgs    [][2]string
	PluginArgsStr string // the whole CNI_ARGS; overrides PluginArgs
	IfName        string
	Path          string // directories, separated as in PATH
}

// ArgsFromEnv returns the variables of this process's own call.
func ArgsFromEnv() *Args {
	return &Args{
		Command:       os.Getenv("CNI_COMMAND"),
		ContainerID:   os.Getenv("CNI_CONTAINERID"),
		NetNS:         os.Getenv("CNI_NETNS"),
		PluginArgsStr: os.Getenv("CNI_ARGS"),
		IfName:        os.Getenv("CNI_IFNAME"),
		Path:          os.Getenv("CNI_PATH"),
	}
}

// AsEnv returns this process's environment with the CNI variables of a.
func (a *Args) AsEnv() []string {
	return setEnv(os.Environ(),
		"CNI_COMMAND="+a.Command,
		"CNI_CONTAINERID="+a.ContainerID,
		"CNI_NETNS="+a.NetNS,
		"CNI_ARGS="+a.pluginArgs(),
		"CNI_IFNAME="+a.IfName,
		"CNI_PATH="+a.Path,
	)
}

func (a *Args) pluginArgs() string {
	if a.PluginArgsStr != "" {
		return a.PluginArgsStr
	}
	return FormatArgs(a.PluginArgs)
}

// FormatArgs returns args in the format of CNI_ARGS.
func FormatArgs(args [][2]string) string {
	pairs := make([]string, len(args))
	for i, kv := range args {
		pairs[i] = kv[0] + "=" + kv[1]
	}
	return strings.Join(pairs, ";")
}

// setEnv replaces variables. If a variable is repeated, some programs use the first value and others the last.
func setEnv(environ []string, set ...string) []string {
	kept := slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		return slices.ContainsFunc(set, func(s string) bool { return name(s) == name(kv) })
	})
	return append(kept, set...)
}

func name(kv string) string {
	key, _, _ := strings.Cut(kv, "=")
	return key
}
