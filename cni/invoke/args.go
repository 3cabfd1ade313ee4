package invoke

import (
	"os"
	"slices"
	"strings"
)

// CNIArgs is what gives a plugin its environment.
type CNIArgs interface {
	// AsEnv is the whole environment, KEY=VALUE each.
	AsEnv() []string
}

// ListedVariable says, to the plugins of a GC, when the runtime made its list of
// valid attachments: nanoseconds of Unix time. What was added later is in none. It
// is not the specification's.
const ListedVariable = "FAIRLEAD_GC_LISTED"

// Args are the variables of one call.
type Args struct {
	Command       string
	ContainerID   string
	NetNS         string // path
	PluginArgs    [][2]string
	PluginArgsStr string // CNI_ARGS as a whole; wins over PluginArgs
	IfName        string
	Path          string // directories, joined as in PATH
}

// ArgsFromEnv are the variables that this process was itself called with.
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

// AsEnv is the environment of this process with the CNI variables of a.
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

// FormatArgs is the form of CNI_ARGS.
func FormatArgs(args [][2]string) string {
	pairs := make([]string, len(args))
	for i, kv := range args {
		pairs[i] = kv[0] + "=" + kv[1]
	}
	return strings.Join(pairs, ";")
}

// setEnv replaces variables: of two equal ones programs take now the first,
// now the last.
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
