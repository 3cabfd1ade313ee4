package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/libcni"
)

// session is one operation on a network and, but for gc, a namespace.
type session struct {
	*app
	cni  *libcni.CNIConfig
	list *libcni.NetworkConfigList
	rt   *libcni.RuntimeConf
}

func (a *app) session(network, netns, ifName string) (*session, error) {
	list, err := libcni.LoadNetworkConf(a.confDir(), network)
	if err != nil {
		return nil, a.explain(err, a.confDir())
	}
	return a.sessionOf(list, netns, ifName)
}

func (a *app) sessionOf(list *libcni.NetworkConfigList, netns, ifName string) (*session, error) {
	s, err := a.settings()
	if err != nil {
		return nil, err
	}
	if ifName != "" {
		s.ifName = ifName
	}
	c := a.runtime(s.path)
	c.Warn = func(msg string, err error) { fmt.Fprintf(a.stderr, "fairlead: warning: %s: %v\n", msg, err) }
	return &session{a, c, list, s.runtimeConf(netns)}, nil
}

// explain says what to do about a network that is not there.
func (a *app) explain(err error, dir string) error {
	if _, ok := errors.AsType[libcni.NoConfigsFoundError](err); ok {
		return fmt.Errorf("%w\nPut a network's configuration there, or set NETCONFPATH", err)
	}
	if _, ok := errors.AsType[libcni.NotFoundError](err); ok {
		if names := networkNames(dir); len(names) > 0 {
			return fmt.Errorf("%w\nThere are: %s", err, join(names))
		}
	}
	return err
}

// operation is a command on a network and a namespace.
func (a *app) operation(c *cobra.Command, do func(*session, context.Context) error) *cobra.Command {
	c.Args, c.GroupID, c.ValidArgsFunction = want(2, 2), "attach", a.completeAttachment
	ifName := c.Flags().StringP("ifname", "i", "", "the interface's name in the container (default CNI_IFNAME, or eth0)")
	c.RunE = func(c *cobra.Command, args []string) error {
		netns, err := netnsPath(args[1])
		if err != nil {
			return err
		}
		s, err := a.session(args[0], netns, *ifName)
		if err != nil {
			return err
		}
		defer a.progress(c.Name() + " " + args[0])()
		return s.advise(do(s, c.Context()))
	}
	return c
}

// advise adds to an error what to do about it, where that can be told.
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
		return fmt.Errorf("%w\nThis needs root. Type: sudo -E fairlead ...", err)
	}
	return err
}

func (a *app) addCommand() *cobra.Command {
	return a.operation(&cobra.Command{
		Use: "add NETWORK NETNS", Short: "attach a namespace to a network",
		Long: "Add runs the plugins of a network for a namespace and prints their result, JSON.\n" +
			"If it fails, type the same with del: that removes whatever the plugins left.",
		Example: `  fairlead add my-network web
  fairlead add my-network /run/netns/web -i net1
  CAP_ARGS='{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}' fairlead add my-network web`,
	}, (*session).add)
}

func (s *session) add(ctx context.Context) error {
	if err := s.needNetns(); err != nil {
		return err
	}
	stood := s.known()
	res, err := s.cni.AddNetworkList(ctx, s.list, s.rt)
	if err != nil && !stood { // as a runtime does: plugins before the one that failed have made theirs
		return errors.Join(err, s.cni.DelNetworkList(context.WithoutCancel(ctx), s.list, s.rt))
	}
	if err != nil {
		return err
	}
	return s.printResult(res)
}

// needNetns says in time what a person has to do first.
func (s *session) needNetns() error {
	if _, err := os.Stat(s.rt.NetNS); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no network namespace %s\nMake one: ip netns add NAME", s.rt.NetNS)
	}
	return nil
}

func (a *app) checkCommand() *cobra.Command {
	return a.operation(&cobra.Command{
		Use: "check NETWORK NETNS", Short: "compare an attachment with what was made",
		Long: "Check asks every plugin of the network whether what it made for the namespace is\n" +
			"still there, and reports each difference. Networks have it since cniVersion 0.4.0.",
		Example: "  fairlead check my-network web",
	}, (*session).check)
}

func (s *session) check(ctx context.Context) error {
	began := time.Now()
	if err := s.cni.CheckNetworkList(ctx, s.list, s.rt); err != nil {
		return err
	}
	return s.done("check", "as it was made", began)
}

func (a *app) delCommand() *cobra.Command {
	return a.operation(&cobra.Command{
		Use: "del NETWORK NETNS", Short: "detach a namespace from a network",
		Long: "Del removes what add made. It works when the namespace is gone, when add was cut\n" +
			"off, and twice.",
		Example: "  fairlead del my-network web",
	}, (*session).del)
}

func (s *session) del(ctx context.Context) error {
	began, words := time.Now(), "detached"
	if !s.known() {
		words = "nothing was known of this attachment; looked all the same"
	}
	if err := s.cni.DelNetworkList(ctx, s.list, s.rt); err != nil {
		return err
	}
	return s.done("del", words, began)
}

// known tells whether the cache or a record has the attachment.
func (s *session) known() bool {
	cached, _ := s.cni.GetNetworkListCachedResult(s.list, s.rt)
	_, err := attach.Open(s.getenv(attach.RootVariable)).Read(kernel.Owner{Network: s.list.Name, ContainerID: s.rt.ContainerID, IfName: s.rt.IfName})
	return cached != nil || err == nil
}

func (a *app) statusCommand() *cobra.Command {
	c := a.operation(&cobra.Command{
		Use: "status NETWORK [NETNS]", Short: "ask whether an add could be served",
		Long: "Status asks every plugin of the network whether it could serve an add now. It has\n" +
			"an answer for networks since cniVersion 1.1.0. Exit code 50: no; 51: containers\n" +
			"that are attached may lack connectivity, too.",
		Example: "  fairlead status my-network",
	}, (*session).status)
	return optionalNetns(c)
}

func (s *session) status(ctx context.Context) error {
	began := time.Now()
	if err := s.cni.GetStatusNetworkList(ctx, s.list); err != nil {
		return err
	}
	words := "ready"
	if !cni.AtLeast(s.list.CNIVersion, "1.1.0") {
		words = "cannot tell: its cniVersion " + s.list.CNIVersion + " has no STATUS (1.1.0 has)"
	}
	return s.done("status", words, began)
}

// optionalNetns makes the namespace a word that may be left out: cnitool wants
// one for every command.
func optionalNetns(c *cobra.Command) *cobra.Command {
	c.Args = want(1, 2)
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 1 {
			args = append(args, "-")
		}
		return run(c, args)
	}
	return c
}

// done reports success: to a person a line, with --json an object.
func (s *session) done(verb, words string, began time.Time) error {
	if !s.json {
		s.say("%s %s: %s (%s)", verb, s.list.Name, words, milliseconds(time.Since(began)))
		return nil
	}
	return s.printJSON(map[string]any{"command": verb, "network": s.list.Name, "container": s.rt.ContainerID, "ifname": s.rt.IfName, "message": words})
}
