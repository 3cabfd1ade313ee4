package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/netconf"
	"github.com/fairlead/fairlead/internal/netnspath"
	"github.com/fairlead/fairlead/podnet"
	"github.com/fairlead/fairlead/podnet/manifest"
)

const podSetUpLong = `Setup attaches a pod to its networks: to all of them or, if one fails, to none. The first
--network is the pod's default network with the interface eth0. The interfaces of the others are net1,
net2 and so on, unless "@" names them. Without --network the pod gets the host's default network.
--publish, --ip, --mac, --alias and the bandwidth flags concern the first network; for another network,
use --annotation fairlead.io/ips.net1=10.1.0.5. docs/pods.md lists all annotations.

You can repeat setup. It changes nothing if the pod already has the requested networks, completes an
interrupted setup, and fails if the pod has other networks.`

// podNetworkFlags are a pod's settings for one network.
type podNetworkFlags struct {
	publish, ips, aliases []string
	mac, ingress, egress  string
}

func (w *podNetworkFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVarP(&w.publish, "publish", "p", nil, "Host port, [[HOSTIP:]HOSTPORT:]PORT[/PROTOCOL]. PORT alone uses the same host port. May be repeated.")
	f.StringSliceVar(&w.ips, "ip", nil, "Fixed address. May be repeated, for each family.")
	f.StringVar(&w.mac, "mac", "", "Hardware address.")
	f.StringSliceVar(&w.aliases, "alias", nil, "Another name of the pod on the network. May be repeated.")
	f.StringVar(&w.ingress, "ingress-bandwidth", "", "Limit of the traffic to the pod in bits per second, like 10M.")
	f.StringVar(&w.egress, "egress-bandwidth", "", "Limit of the traffic from the pod in bits per second, like 10M.")
}

// apply sets what the flags ask for in the first network of a pod. Each value is verified first, so that an error names
// the flag.
func (w *podNetworkFlags) apply(p *podnet.Pod) error {
	all := map[string]string{}
	for _, f := range []struct {
		flag, key string
		values    []string
	}{
		{"publish", "ports", w.publish}, {"ip", "ips", w.ips}, {"mac", "mac", []string{w.mac}}, {"alias", "aliases", w.aliases},
		{"ingress-bandwidth", "ingress-bandwidth", []string{w.ingress}}, {"egress-bandwidth", "egress-bandwidth", []string{w.egress}},
	} {
		for _, v := range f.values {
			if v == "" {
				continue
			}
			test := &podnet.Pod{ID: "x", Netns: "/x"}
			if err := errors.Join(test.Annotate(map[string]string{podnet.Prefix + f.key: v}), test.Validate()); err != nil {
				return fmt.Errorf("--%s %s: %s", f.flag, v, aboutValue(err, v))
			}
			all[podnet.Prefix+f.key] = strings.TrimPrefix(all[podnet.Prefix+f.key]+","+v, ",")
		}
	}
	return p.Annotate(all)
}

// aboutValue returns the part of an error that follows the value.
func aboutValue(err error, value string) string {
	text := err.Error()
	if _, about, ok := strings.Cut(text, fmt.Sprintf("%q: ", value)); ok {
		return about
	}
	for _, prefix := range []string{"networks[0]: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}

// podSetting are the flags of setup.
type podSetting struct {
	podNetworkFlags
	netns, manifest       string
	namespace, name, uid  string
	networks, annotations []string
}

func (a *app) podSetUp(f *podFlags) *cobra.Command {
	s := &podSetting{}
	c := &cobra.Command{
		Use: "setup POD", Short: "attach a pod to its networks", Long: podSetUpLong,
		Example: `  fairlead pod setup web --publish 8080:80
  fairlead pod setup web --network my-network --network dbnet@back0 --ip 10.244.0.9
  fairlead pod setup 4f1c9a --netns /run/netns/cni-1 --pod pod.yaml`,
		Args: want(1, 1), ValidArgsFunction: a.completeNetns,
	}
	s.podNetworkFlags.flags(c)
	c.Flags().BoolVar(&f.lenient, "lenient", false, "Warn of what no plugin of a network supports, instead of failing.")
	c.Flags().StringVar(&s.netns, "netns", "", "Network namespace: a path, or a name as \"ip netns\" shows it (default POD).")
	c.Flags().StringVar(&s.namespace, "namespace", "", "Namespace of the pod in Kubernetes, for the plugins (CNI_ARGS).")
	c.Flags().StringVar(&s.name, "name", "", "Name of the pod in Kubernetes, for the plugins (CNI_ARGS).")
	c.Flags().StringVar(&s.uid, "uid", "", "UID of the pod in Kubernetes, for the plugins (CNI_ARGS).")
	c.Flags().StringArrayVar(&s.networks, "network", nil, "Name of a network, NAME[@INTERFACE]. May be repeated.")
	c.Flags().StringArrayVar(&s.annotations, "annotation", nil, "Annotation of the pod, KEY=VALUE. May be repeated.")
	c.Flags().StringVar(&s.manifest, "pod", "", "Kubernetes manifest, YAML or JSON, with names, annotations, host ports and DNS. - is standard input.")
	_ = c.RegisterFlagCompletionFunc("network", a.completeNetworks)
	_ = c.RegisterFlagCompletionFunc("netns", a.completeNetns)
	return a.withManager(c, f, func(ctx context.Context, m *podnet.Manager, args []string) error {
		pod, annotations, err := a.readManifest(s.manifest)
		if err != nil {
			return err
		}
		if err := s.complete(pod, annotations, args[0]); err != nil {
			return &usageError{err.Error(), "Type: fairlead pod setup --help"}
		}
		if _, err := os.Stat(pod.Netns); errors.Is(err, os.ErrNotExist) {
			return noNetns(pod.Netns)
		}
		status, err := m.SetUpPod(ctx, *pod)
		if err != nil {
			return a.explain(err, a.confDir())
		}
		return a.printPod(status)
	})
}

// readManifest reads a pod and its annotations from a file. Without a file, both are empty.
func (a *app) readManifest(file string) (*podnet.Pod, map[string]string, error) {
	if file == "" {
		return &podnet.Pod{}, nil, nil
	}
	raw, err := a.fileOrInput(file)
	if err != nil {
		return nil, nil, fmt.Errorf("read the manifest: %w", err)
	}
	p, annotations, err := manifest.Parse(raw)
	if err != nil {
		return nil, nil, invalidError{fmt.Errorf("%s: %w", file, err)}
	}
	return p, annotations, nil
}

// complete adds to a pod what the flags say.
func (s *podSetting) complete(p *podnet.Pod, own map[string]string, id string) error {
	annotations := map[string]string{}
	maps.Copy(annotations, own)
	p.ID = id
	for to, flag := range map[*string]string{&p.Namespace: s.namespace, &p.Name: s.name, &p.UID: s.uid} {
		if flag != "" {
			*to = flag
		}
	}
	if s.netns == "" {
		s.netns = id
	}
	netns, err := netnspath.Resolve(s.netns)
	if err != nil {
		return err
	}
	p.Netns = netns
	if err := withNetworks(p, s.networks); err != nil {
		return err
	}
	for _, kv := range s.annotations {
		key, value, ok := strings.Cut(kv, "=")
		if !ok {
			return fmt.Errorf("--annotation %s: want KEY=VALUE", kv)
		}
		annotations[key] = value
	}
	if err := p.Annotate(annotations); err != nil {
		return err
	}
	if err := s.apply(p); err != nil {
		return err
	}
	return p.Validate()
}

// withNetworks adds the networks of the flags to a pod. The first network gets what a manifest asks for.
func withNetworks(p *podnet.Pod, names []string) error {
	for i, name := range names {
		list, err := podnet.ParseNetworks(name, "")
		if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/") || slices.Contains(netconf.Extensions(), filepath.Ext(name)) {
			err = errors.New("want the name of a network, not a file: a pod's networks are in NETCONFPATH")
		}
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
	w := &podNetworkFlags{}
	c := &cobra.Command{
		Use: "attach POD NETWORK[@INTERFACE]", Short: "attach a running pod to one more network",
		Long: "Attach adds an interface to a pod that is set up. Its name is net1, or the next free one, unless\n" +
			"\"@\" names it. Teardown removes it with the others.",
		Example: "  fairlead pod attach web dbnet\n  fairlead pod attach web dbnet@back0 --ip 10.2.0.9",
		Args:    want(2, 2), ValidArgsFunction: a.completePodNetwork,
	}
	w.flags(c)
	c.Flags().BoolVar(&f.lenient, "lenient", false, "Warn of what no plugin of the network supports, instead of failing.")
	return a.withManager(c, f, func(ctx context.Context, m *podnet.Manager, args []string) error {
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

// fileOrInput reads a file. - is standard input.
func (a *app) fileOrInput(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(a.stdin)
	}
	return os.ReadFile(file)
}
