package skel

import (
	"strings"

	"github.com/fairlead/fairlead/cni"
)

// verb lists what an operation needs.
type verb struct {
	since      string // smallest cniVersion of the configuration
	attachment bool   // CNI_CONTAINERID and CNI_IFNAME
	netns      bool   // CNI_NETNS
}

// verbs returns the table of operations. Source: specification, section 2.
func verbs() map[string]verb {
	return map[string]verb{
		"ADD":    {since: "0.1.0", attachment: true, netns: true},
		"DEL":    {since: "0.1.0", attachment: true},
		"CHECK":  {since: "0.4.0", attachment: true, netns: true},
		"GC":     {since: "1.1.0"},
		"STATUS": {since: "1.1.0"},
	}
}

func argsFromEnv(env func(string) string) CmdArgs {
	return CmdArgs{
		ContainerID:   env("CNI_CONTAINERID"),
		Netns:         env("CNI_NETNS"),
		IfName:        env("CNI_IFNAME"),
		Args:          env("CNI_ARGS"),
		Path:          env("CNI_PATH"),
		NetnsOverride: env("CNI_NETNS_OVERRIDE"),
	}
}

// checkEnv reports all problems of the environment at once.
func checkEnv(a *CmdArgs, command string, v verb) error {
	var missing, problems []string
	require := func(needed bool, name, value string, validate func(string) error) {
		if needed && value == "" {
			missing = append(missing, name)
		}
		if needed && value != "" && validate != nil {
			if err := validate(value); err != nil {
				problems = append(problems, name+": "+err.Error())
			}
		}
	}
	require(v.attachment, "CNI_CONTAINERID", a.ContainerID, cni.ValidateContainerID)
	require(v.netns, "CNI_NETNS", a.Netns, nil)
	require(v.attachment, "CNI_IFNAME", a.IfName, cni.ValidateInterfaceName)
	require(true, "CNI_PATH", a.Path, nil)
	if missing != nil {
		problems = append([]string{"required env variables [" + strings.Join(missing, ",") + "] missing"}, problems...)
	}
	if problems == nil {
		return nil
	}
	return cni.Errorf(cni.CodeInvalidEnvironment, "%s: %s", command, strings.Join(problems, "; "))
}

// AllowsOwnNetns reports whether a value of CNI_NETNS_OVERRIDE allows the plugin's own network namespace.
func AllowsOwnNetns(override string) bool {
	return override == "1" || strings.EqualFold(override, "true")
}

// checkNetns rejects the plugin's own network namespace, which is the host's, and for ADD and CHECK a path that is not
// a namespace. On DEL a path to the host's namespace is stale, for example because a process ID was reused: the
// container's namespace is gone, so checkNetns drops the path.
func checkNetns(a *CmdArgs, v verb, anyNetns bool) error {
	if a.Netns == "" || AllowsOwnNetns(a.NetnsOverride) {
		return nil
	}
	if isOwnNetns(a.Netns) {
		if !v.netns {
			a.Netns = ""
			return nil
		}
		return cni.Errorf(cni.CodeInvalidNetns, "CNI_NETNS=%s is the network namespace of the plugin itself: want the container's; CNI_NETNS_OVERRIDE=1 allows it", a.Netns)
	}
	if anyNetns || !v.netns {
		return nil
	}
	if err := checkNetnsPath(a.Netns); err != nil {
		return cni.Errorf(cni.CodeInvalidEnvironment, "CNI_NETNS=%s: %w", a.Netns, err)
	}
	return nil
}
