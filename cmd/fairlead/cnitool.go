package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/libcni"
)

const cnitoolUsage = `cnitool: Add, check, remove, gc or status network interfaces from a network namespace
  cnitool [-i IFNAME] add    <net> <netns>
  cnitool [-i IFNAME] check  <net> <netns>
  cnitool [-i IFNAME] del    <net> <netns>
  cnitool gc     <net> <netns>
  cnitool status <net> <netns>
`

// cnitool runs the program under the name cnitool: every failure is exit code 1, and only results and the help go to
// standard output.
func cnitool(ctx context.Context, a *app, args []string) int {
	if len(args) == 0 || args[0] == "help" || slices.Contains(args, "-h") || slices.Contains(args, "--help") {
		fmt.Fprint(a.stdout, cnitoolUsage)
		return exitOK
	}
	args, ifName, err := cutIfName(args)
	if err != nil || len(args) < 3 {
		fmt.Fprint(a.stderr, cnitoolUsage)
		return exitFailed
	}
	if err := a.cnitoolDo(ctx, args[0], args[1], args[2], ifName); err != nil {
		fmt.Fprintln(a.stderr, err)
		return exitFailed
	}
	return exitOK
}

// cutIfName removes -i and its value from the arguments, at any position.
func cutIfName(args []string) (rest []string, ifName string, err error) {
	for i := 0; i < len(args); i++ {
		flag, value, joined := strings.Cut(args[i], "=")
		switch {
		case flag != "-i" && flag != "--ifname":
			rest = append(rest, args[i])
		case joined:
			ifName = value
		case i+1 < len(args):
			i++
			ifName = args[i]
		default:
			return nil, "", errors.New("-i needs a name")
		}
	}
	return rest, ifName, nil
}

func (a *app) cnitoolDo(ctx context.Context, verb, network, netns, ifName string) error {
	settings, err := a.settings()
	if err != nil {
		return err
	}
	if ifName != "" {
		settings.ifName = ifName
	}
	list, err := libcni.LoadNetworkConf(settings.confDir, network)
	if err != nil {
		return err
	}
	if netns, err = filepath.Abs(netns); err != nil {
		return err
	}
	c, rt := a.runtime(settings.path), settings.runtimeConf(netns)
	switch verb {
	case "add":
		return a.cnitoolAdd(ctx, c, list, rt)
	case "check":
		return c.CheckNetworkList(ctx, list, rt)
	case "del":
		return c.DelNetworkList(ctx, list, rt)
	case "gc":
		return c.GCNetworkList(ctx, list, nil)
	case "status":
		return c.GetStatusNetworkList(ctx, list)
	}
	return fmt.Errorf("no such command: %s\n%s", verb, strings.TrimSpace(cnitoolUsage))
}

// cnitoolAdd prints the result as the reference does, without a final newline.
func (a *app) cnitoolAdd(ctx context.Context, c *libcni.CNIConfig, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
	res, err := c.AddNetworkList(ctx, list, rt)
	if err != nil {
		return err
	}
	text, err := resultText(res, list.CNIVersion)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(a.stdout, text)
	return err
}
