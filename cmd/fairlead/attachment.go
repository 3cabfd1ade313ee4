package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/gc"
	"github.com/fairlead/fairlead/internal/netconf"
	"github.com/fairlead/fairlead/internal/netnspath"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/libcni"
)

// session is one operation on a network and a namespace.
type session struct {
	*app
	cni  *libcni.CNIConfig
	list *libcni.NetworkConfigList
	rt   *libcni.RuntimeConf
}

// session prepares an operation. The network is a name or a file.
func (a *app) session(network, netns, ifName string) (*session, error) {
	list, err := netconf.Load(a.confDir(), network)
	if err != nil {
		return nil, a.explain(err, a.confDir())
	}
	return a.sessionOn(list, netns, ifName)
}

// sessionOn prepares an operation on a network that was found.
func (a *app) sessionOn(list *libcni.NetworkConfigList, netns, ifName string) (*session, error) {
	s, err := a.settings()
	if err != nil {
		return nil, err
	}
	if ifName != "" {
		s.ifName = ifName
		if err := cni.ValidateInterfaceName(ifName); err != nil {
			return nil, &usageError{"--ifname " + ifName + ": " + err.Error(), "Type: fairlead help add"}
		}
	}
	return &session{a, a.runtime(s.path), list, s.runtimeConf(netns)}, nil
}

// cachedSession prepares the removal of an attachment to a network without a configuration. It uses the configuration and the
// arguments of the ADD, from the cache of results, or none if only a record exists. ok is false if there is neither.
func (a *app) cachedSession(network, netns, ifName string) (s *session, ok bool) {
	if netconf.IsFile(network) || cni.ValidateNetworkName(network) != nil {
		return nil, false
	}
	s, err := a.sessionOn(&libcni.NetworkConfigList{Name: network}, netns, ifName)
	if err != nil {
		return nil, false
	}
	config, rt, _ := s.cni.GetNetworkListCachedConfig(s.list, s.rt) // it warns of a file that it cannot use
	if config != nil {
		cached := &libcni.NetworkAttachment{Network: network, Config: config}
		if list, err := cached.List(); err == nil {
			s.list, s.rt = list, rt
			return s, true
		}
	}
	_, err = s.records().Read(s.owner())
	return s, err == nil
}

// networkName returns the name of a network that is given by its name or by its file.
func (a *app) networkName(network string) (string, error) {
	if !netconf.IsFile(network) {
		return network, nil
	}
	list, err := netconf.Load(a.confDir(), network)
	if err != nil {
		return "", err
	}
	return list.Name, nil
}

// explain adds to the error of a missing network what the user can do.
func (a *app) explain(err error, dir string) error {
	if _, ok := errors.AsType[libcni.NoConfigsFoundError](err); ok {
		return fmt.Errorf("%w\nPut the configuration of a network there, set NETCONFPATH, or name a file", err)
	}
	if _, ok := errors.AsType[libcni.NotFoundError](err); ok {
		if names := netconf.Names(dir); len(names) > 0 {
			return fmt.Errorf("%w\nThere are: %s", err, join(names))
		}
	}
	return err
}

// operation completes a command on a network and a namespace.
func (a *app) operation(c *cobra.Command, do func(*session, context.Context) error) *cobra.Command {
	c.Args, c.GroupID, c.ValidArgsFunction = want(2, 2), "attach", a.completeAttachment
	ifName := ifNameFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		netns, err := netnspath.Resolve(args[1])
		if err != nil {
			return err
		}
		s, err := a.session(args[0], netns, *ifName)
		if err != nil && c.Name() == "del" {
			if cached, ok := a.cachedSession(args[0], netns, *ifName); ok {
				s, err = cached, nil
			}
		}
		if err != nil {
			return err
		}
		defer a.progress(c.Name() + " " + args[0])()
		return s.advise(do(s, c.Context()))
	}
	return c
}

func ifNameFlag(c *cobra.Command) *string {
	return c.Flags().StringP("ifname", "i", "", "Name of the interface in the container (default CNI_IFNAME, or eth0).")
}

// advise adds to an error what the user can do, if that is known.
func (s *session) advise(err error) error {
	if err == nil {
		return nil
	}
	for _, p := range s.list.Plugins {
		if _, e := invoke.FindInPath(p.Network.Type, s.cni.Path); errors.Is(e, os.ErrNotExist) {
			return fmt.Errorf("%w\nSet CNI_PATH to the directories of your plugins", err)
		}
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w\nThis needs root: run the same command with \"sudo -E\"", err)
	}
	return err
}

func (a *app) addCommand() *cobra.Command {
	return a.operation(&cobra.Command{
		Use: "add NETWORK NETNS", Short: "attach a namespace to a network",
		Long: "Add runs the plugins of a network for a namespace and prints their result as JSON. If it\n" +
			"fails, or Ctrl-C stops it, it removes what it had created. NETWORK may be a file.",
		Example: `  fairlead add my-network web
  fairlead add my-network /run/netns/web -i net1
  fairlead add /etc/cni/net.d/10-my-network.conflist web -i net2
  CAP_ARGS='{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}' fairlead add my-network web -i net3`,
	}, (*session).add)
}

func (s *session) add(ctx context.Context) error {
	if err := errors.Join(s.list.CheckVersion(), s.needNetns()); err != nil {
		return err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	closed := make(chan os.Signal, 1)
	signal.Notify(closed, syscall.SIGPIPE) // printing the result to a closed pipe is then an error, and does not end the program
	defer signal.Stop(closed)
	attached, taken := s.isAttached(), kernel.HasLink(s.rt.NetNS, s.rt.IfName)
	res, err := s.cni.AddNetworkList(ctx, s.list, s.rt)
	switch {
	case err == nil:
		if err = s.printResult(res); err == nil {
			return nil
		}
	case attached:
		return fmt.Errorf("%w\nTo detach it: %s", err, s.command("del"))
	case taken: // DEL would remove it
		return fmt.Errorf("%w\nThe namespace had an interface %s before, so nothing was removed. For another name, type the same command with -i", err, s.rt.IfName)
	}
	undo := s.cni.DelNetworkList(context.WithoutCancel(ctx), s.list, s.rt) // plugins before the one that failed have created their objects
	if undo != nil && undo.Error() == err.Error() {                        // both refuse the same argument
		return err
	}
	return errors.Join(err, undo)
}

// command returns the command line of another command for the attachment.
func (s *session) command(verb string) string {
	line := "fairlead " + verb + " " + s.list.Name + " " + shownName(s.rt.ContainerID, s.rt.NetNS)
	if s.rt.IfName != defaultIfName {
		line += " -i " + s.rt.IfName
	}
	return line
}

// isAttached reports whether the attachment exists.
func (s *session) isAttached() bool {
	r, err := s.records().Read(s.owner())
	return err == nil && r.HasNetns()
}

// needNetns fails if the namespace does not exist, or if only this process finds it at its path: every later command, such
// as gc, would take it for a namespace that is gone.
func (s *session) needNetns() error {
	for _, own := range []string{"/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/"} {
		if strings.HasPrefix(s.rt.NetNS, own) {
			return fmt.Errorf("%s is another file for every process: want a path like /run/netns/NAME or /proc/PID/ns/net", s.rt.NetNS)
		}
	}
	if _, err := os.Stat(s.rt.NetNS); errors.Is(err, os.ErrNotExist) {
		return noNetns(s.rt.NetNS)
	}
	return nil
}

func noNetns(path string) error {
	name := "NAME"
	if dir, base := filepath.Split(path); dir == "/run/netns/" || dir == "/var/run/netns/" {
		name = base
	}
	return fmt.Errorf("there is no network namespace %s\nCreate one: ip netns add %s", path, name)
}

func (a *app) checkCommand() *cobra.Command {
	c := a.operation(&cobra.Command{
		Use: "check NETWORK NETNS", Short: "verify that an attachment is unchanged",
		Long: "Check asks every plugin of the network whether the objects that it created for the\n" +
			"namespace are unchanged, and reports each difference. Networks support it since\n" +
			"cniVersion 0.4.0; for an older network it fails.\n\n" +
			"A network of Docker has no configuration. Check then compares the records of its endpoints, and\n" +
			"NETNS may be the beginning of an endpoint's ID.",
		Example: "  fairlead check my-network web\n  fairlead check docker-d11582073763 efa8161de87a",
	}, (*session).check)
	byPlugins := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if done, err := a.checkRecords(args[0], args[1]); done {
			return err
		}
		return byPlugins(c, args)
	}
	return c
}

func (s *session) check(ctx context.Context) error {
	began := time.Now()
	if err := s.cni.CheckNetworkList(ctx, s.list, s.rt); err != nil {
		if s.known() {
			return err
		}
		if _, err := os.Stat(s.rt.NetNS); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("there is no network namespace %s\nType: fairlead list", s.rt.NetNS)
		}
		return cmp.Or(s.needNetns(), fmt.Errorf("%s has no interface %s on network %s\nType: fairlead list",
			shownName(s.rt.ContainerID, s.rt.NetNS), s.rt.IfName, s.list.Name))
	}
	if s.list.DisableCheck {
		return s.done("check", "not checked: the network's configuration has disableCheck", began)
	}
	return s.done("check", "unchanged", began)
}

func (a *app) delCommand() *cobra.Command {
	return a.operation(&cobra.Command{
		Use: "del NETWORK NETNS", Short: "detach a namespace from a network",
		Long: "Del removes what add created. It also works if the namespace is gone, after an interrupted\n" +
			"add, twice, and if the network's configuration has changed or is gone since.",
		Example: "  fairlead del my-network web",
	}, (*session).del)
}

func (s *session) del(ctx context.Context) error {
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	began, message := time.Now(), "detached"
	if !s.known() {
		message = "no such attachment was known; removed what there was"
	}
	if len(s.list.Plugins) > 0 { // else only the record tells what to remove
		if err := s.cni.DelNetworkList(ctx, s.list.ForDel(), s.rt); err != nil {
			return err
		}
	}
	if _, err := s.records().Read(s.owner()); err == nil { // the configuration has changed since the ADD
		if err := gc.RemoveAttachment(ctx, s.gcOptions(false), s.owner(), s.rt.NetNS); err != nil {
			return fmt.Errorf("remove what an earlier configuration of network %s created: %w", s.list.Name, err)
		}
	}
	return s.done("del", message, began)
}

// lock locks the attachment: of several commands for one attachment, each begins after the one before it has ended.
func (s *session) lock(ctx context.Context) (unlock func(), err error) {
	return s.records().LockList(ctx, s.owner())
}

// known reports whether the cache or a record has the attachment.
func (s *session) known() bool {
	cached, _ := s.cni.GetNetworkListCachedResult(s.list, s.rt)
	_, err := s.records().Read(s.owner())
	return cached != nil || err == nil
}

func (s *session) records() *attach.Dir { return attach.Open(s.getenv(attach.RootVariable)) }

func (s *session) owner() kernel.Owner {
	return kernel.Owner{Network: s.list.Name, ContainerID: s.rt.ContainerID, IfName: s.rt.IfName}
}

func (a *app) statusCommand() *cobra.Command {
	c := a.operation(&cobra.Command{
		Use: "status NETWORK [NETNS]", Short: "ask whether an ADD would work",
		Long: "Status asks every plugin of the network whether an ADD would work now. Networks support it\n" +
			"since cniVersion 1.1.0; for an older network the answer is unknown, which is not an error.\n" +
			"NETNS has no effect: cnitool requires one. Exit code 50: an ADD would fail; 51: existing\n" +
			"containers may lack connectivity, too.",
		Example: "  fairlead status my-network",
	}, (*session).status)
	return optionalNetns(c)
}

func (s *session) status(ctx context.Context) error {
	began := time.Now()
	if err := s.cni.GetStatusNetworkList(ctx, s.list); err != nil {
		return unavailable(err)
	}
	message := "ready"
	if !cni.AtLeast(s.list.CNIVersion, "1.1.0") {
		message = "unknown: cniVersion " + s.list.CNIVersion + " has no STATUS (1.1.0 has)"
	}
	return s.done("status", message, began)
}

// noNamespace is NETNS of a command about a whole network.
const noNamespace = "-"

// optionalNetns makes NETNS optional in a command that does not use it.
func optionalNetns(c *cobra.Command) *cobra.Command {
	c.Args = want(1, 2)
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 1 {
			args = append(args, noNamespace)
		}
		return run(c, args)
	}
	return c
}

// done reports success: a line on a terminal, or an object with --output json or yaml.
func (s *session) done(verb, message string, began time.Time) error {
	if !s.structured() {
		s.say("%s %s: %s (%s)", verb, s.list.Name, message, milliseconds(time.Since(began)))
		return nil
	}
	out := map[string]any{"command": verb, "network": s.list.Name, "message": message}
	if filepath.Base(s.rt.NetNS) != noNamespace {
		out["container"], out["ifname"] = s.rt.ContainerID, s.rt.IfName
	}
	return s.printData(out)
}
