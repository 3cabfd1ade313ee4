package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/podnet"
)

const podSetUpLong = `Setup puts a pod on its networks: on all of them, or, if one fails, on none. The first
--network is the pod's default network, its interface eth0; the others' are net1, net2
and so on, unless named with "@". Without one it is the host's default network. What
--publish, --ip, --mac, --alias and the bandwidths say is about the first; for another,
say --annotation fairlead.io/ips.net1=10.1.0.5. docs/pods.md has all annotations.

It can be repeated: a pod that stands as it is wanted is left alone, one that was cut
off is made anew.`

// wishes are the flags of what a pod wants of a network.
type wishes struct {
	publish, ips, aliases []string
	mac, ingress, egress  string
}

func (w *wishes) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVarP(&w.publish, "publish", "p", nil, "a host port, [HOSTIP:]HOSTPORT:PORT[/PROTOCOL]; may be repeated")
	f.StringSliceVar(&w.ips, "ip", nil, "a fixed address; may be repeated, for each family")
	f.StringVar(&w.mac, "mac", "", "the hardware address")
	f.StringSliceVar(&w.aliases, "alias", nil, "another name of the pod on the network")
	f.StringVar(&w.ingress, "ingress-bandwidth", "", "limit of what comes to the pod, bits a second, like 10M")
	f.StringVar(&w.egress, "egress-bandwidth", "", "limit of what the pod sends, bits a second, like 10M")
}

// apply puts the wishes into a network, which is its pod's first.
func (w *wishes) apply(p *podnet.Pod) error {
	own := map[string]string{}
	for key, value := range map[string]string{
		"ips": strings.Join(w.ips, ","), "mac": w.mac, "ports": strings.Join(w.publish, ","), "aliases": strings.Join(w.aliases, ","),
		"ingress-bandwidth": w.ingress, "egress-bandwidth": w.egress,
	} {
		if value != "" {
			own[podnet.Prefix+key] = value
		}
	}
	return p.Annotate(own)
}

// podSetting are the flags of setup.
type podSetting struct {
	wishes
	netns, manifest       string
	namespace, name, uid  string
	networks, annotations []string
}

func (a *app) podSetUp(f *podFlags) *cobra.Command {
	s := &podSetting{}
	c := &cobra.Command{
		Use: "setup POD", Short: "put a pod on its networks", Long: podSetUpLong,
		Example: `  fairlead pod setup web --publish 8080:80
  fairlead pod setup web --network my-network --network dbnet@back0 --ip 10.244.0.9
  fairlead pod setup 4f1c9a --netns /run/netns/cni-1 --pod pod.yaml`,
		Args: want(1, 1), ValidArgsFunction: a.completeNetns,
	}
	s.wishes.flags(c)
	c.Flags().BoolVar(&f.lenient, "lenient", false, "warn of what no plugin of a network can do, instead of failing")
	c.Flags().StringVar(&s.netns, "netns", "", "the network namespace: a path, or a name as \"ip netns\" knows it (default POD)")
	c.Flags().StringVar(&s.namespace, "namespace", "", "the pod's namespace in Kubernetes, for plugins that ask")
	c.Flags().StringVar(&s.name, "name", "", "the pod's name in Kubernetes")
	c.Flags().StringVar(&s.uid, "uid", "", "the pod's UID in Kubernetes")
	c.Flags().StringArrayVar(&s.networks, "network", nil, "a network, NAME[@INTERFACE]; may be repeated")
	c.Flags().StringArrayVar(&s.annotations, "annotation", nil, "an annotation of the pod, KEY=VALUE; may be repeated")
	c.Flags().StringVar(&s.manifest, "pod", "", "a manifest of Kubernetes, YAML or JSON, for names, annotations, host ports and DNS; -: standard input")
	_ = c.RegisterFlagCompletionFunc("network", a.completeNetworks)
	_ = c.RegisterFlagCompletionFunc("netns", a.completeNetns)
	return a.podRun(c, f, func(ctx context.Context, m *podnet.Manager, args []string) error {
		pod, err := a.podOf(args[0], s)
		if err != nil {
			return &usageError{err.Error(), "Type: fairlead pod setup --help"}
		}
		if _, err := os.Stat(pod.Netns); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("there is no network namespace %s\nMake one: ip netns add NAME", pod.Netns)
		}
		status, err := m.SetUpPod(ctx, *pod)
		if err != nil {
			return a.explain(err, a.confDir())
		}
		return a.printPod(status)
	})
}

// podOf is what the flags and the manifest want.
func (a *app) podOf(id string, s *podSetting) (*podnet.Pod, error) {
	p := &podnet.Pod{ID: id}
	annotations := map[string]string{}
	if s.manifest != "" {
		if err := readManifest(s.manifest, p, annotations); err != nil {
			return nil, err
		}
	}
	for to, flag := range map[*string]string{&p.Namespace: s.namespace, &p.Name: s.name, &p.UID: s.uid} {
		if flag != "" {
			*to = flag
		}
	}
	if s.netns == "" {
		s.netns = id
	}
	netns, err := netnsPath(s.netns)
	if err != nil {
		return nil, err
	}
	p.Netns = netns
	if err := withNetworks(p, s.networks); err != nil {
		return nil, err
	}
	for _, kv := range s.annotations {
		key, value, ok := strings.Cut(kv, "=")
		if !ok {
			return nil, fmt.Errorf("--annotation %s: want KEY=VALUE", kv)
		}
		annotations[key] = value
	}
	if err := p.Annotate(annotations); err != nil {
		return nil, err
	}
	if err := s.apply(p); err != nil {
		return nil, err
	}
	return p, p.Validate()
}

// withNetworks puts the networks of flags into a pod; the first gets what a manifest
// asked of the pod.
func withNetworks(p *podnet.Pod, names []string) error {
	for i, name := range names {
		list, err := podnet.ParseNetworks(name, "")
		if err == nil && len(list) != 1 {
			err = errors.New("want one network, NAME[@INTERFACE]")
		}
		if err != nil {
			return fmt.Errorf("--network %s: %w", name, err)
		}
		if i == 0 && len(p.Networks) > 0 {
			p.Networks[0].Name, p.Networks[0].IfName = list[0].Name, list[0].IfName
			continue
		}
		p.Networks = append(p.Networks, list...)
	}
	return nil
}

func (a *app) podAttach(f *podFlags) *cobra.Command {
	w := &wishes{}
	c := &cobra.Command{
		Use: "attach POD NETWORK[@INTERFACE]", Short: "put a running pod on one more network",
		Long: "Attach adds an interface to a pod that is set up, net1 or the next that is free\n" +
			"unless it is named. teardown removes it with the others.",
		Example: "  fairlead pod attach web dbnet\n  fairlead pod attach web dbnet@back0 --ip 10.2.0.9",
		Args:    want(2, 2), ValidArgsFunction: a.completePodNetwork,
	}
	w.flags(c)
	c.Flags().BoolVar(&f.lenient, "lenient", false, "warn of what no plugin of the network can do, instead of failing")
	return a.podRun(c, f, func(ctx context.Context, m *podnet.Manager, args []string) error {
		p := &podnet.Pod{}
		err := withNetworks(p, args[1:])
		if err == nil {
			err = w.apply(p)
		}
		if err != nil {
			return &usageError{err.Error(), "Type: fairlead pod attach --help"}
		}
		got, err := m.Attach(ctx, args[0], p.Networks[0])
		if err != nil {
			return a.explain(err, a.confDir())
		}
		return a.printAttachments([]podnet.NetworkStatus{got.NetworkStatus()})
	})
}
