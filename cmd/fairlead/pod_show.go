package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/podnet"
)

// shownPod is a pod as status and list print it.
type shownPod struct {
	ID        string                 `json:"id"`
	Namespace string                 `json:"namespace,omitempty"`
	Name      string                 `json:"name,omitempty"`
	UID       string                 `json:"uid,omitempty"`
	Netns     string                 `json:"netns"`
	State     string                 `json:"state"`
	Networks  []podnet.NetworkStatus `json:"networks"` // the value of the annotation network-status
}

func describePod(s *podnet.PodStatus) shownPod {
	return shownPod{s.ID, s.Namespace, s.Name, s.UID, s.Netns, s.State, s.NetworkStatus()}
}

func (a *app) printPod(s *podnet.PodStatus) error {
	if a.structured() {
		return a.printData(describePod(s))
	}
	if s.State != podnet.StateReady {
		fmt.Fprintf(a.stdout, "%s: %s\n", s.ID, s.State)
	}
	return a.printAttachments(s.NetworkStatus())
}

func (a *app) printAttachments(list []podnet.NetworkStatus) error {
	if a.structured() {
		return a.printData(list)
	}
	t := table{{"INTERFACE", "NETWORK", "ADDRESSES", "GATEWAY", "MAC", "DNS", "MTU"}}
	for _, n := range list {
		dns, mtu := join(n.DNS.Nameservers), ""
		if n.MTU != 0 {
			mtu = fmt.Sprint(n.MTU)
		}
		t = append(t, []string{n.Interface, n.Name, join(n.IPs), join(n.Gateway), n.MAC, dns, mtu})
	}
	return a.printTable(t, 5)
}

func (a *app) podList(f *podFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "list the pods that are set up",
		Long: "List prints the pods that setup created on this host. Their state is \"ready\",\n" +
			"\"namespace gone\", \"busy\", or \"interrupted\": an operation was killed, and teardown\n" +
			"or another setup removes what it left.",
		Example: "  fairlead pod list\n  fairlead pod list --json | jq -r '.[].networks[].ips[]'",
		Args:    want(0, 0),
	}
	a.withManager(c, f, func(_ context.Context, m *podnet.Manager, _ []string) error {
		pods, err := m.List() // with an error, the pods that could be read
		if err != nil && len(pods) == 0 {
			return err
		}
		return errors.Join(a.printPods(pods), err)
	})
	c.GroupID = "node"
	return c
}

func (a *app) printPods(pods []*podnet.PodStatus) error {
	if a.structured() {
		var out []shownPod
		for _, p := range pods {
			out = append(out, describePod(p))
		}
		return a.printData(out)
	}
	if len(pods) == 0 {
		_, err := fmt.Fprintln(a.stdout, "No pods. To set one up: fairlead pod setup POD")
		return err
	}
	t := table{{"POD", "NAME", "NETWORKS", "ADDRESSES", "STATE", "NAMESPACE", "UID"}}
	for _, p := range pods {
		var networks, addresses []string
		for _, n := range p.NetworkStatus() {
			networks = append(networks, n.Name+"@"+n.Interface)
			addresses = append(addresses, n.IPs...)
		}
		name := p.Name
		if p.Namespace != "" {
			name = p.Namespace + "/" + name
		}
		t = append(t, []string{p.ID, name, join(networks), join(addresses), p.State, p.Netns, p.UID})
	}
	return a.printTable(t, 5)
}

func (a *app) podStatus(f *podFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "status [POD]", Short: "show the networks of a pod, or whether pods can be set up",
		Long: "Status prints the networks of a pod. With --json, \"networks\" is the value of the annotation\n" +
			"k8s.v1.cni.cncf.io/network-status. Without POD it asks the default network whether a setup\n" +
			"would work, and prints every network and the problems of the configuration. Exit code 50: a\n" +
			"setup would fail; 51: existing pods may lack connectivity, too.",
		Example: "  fairlead pod status\n  fairlead pod status web --json",
		Args:    want(0, 1), ValidArgsFunction: a.completePods,
	}
	return a.withManager(c, f, func(ctx context.Context, m *podnet.Manager, args []string) error {
		if len(args) == 0 {
			return a.nodeStatus(m.Status(ctx))
		}
		s, err := m.PodStatus(args[0])
		if err != nil {
			return err
		}
		return a.printPod(s)
	})
}

// shownNode is a NodeStatus in its JSON form.
type shownNode struct {
	Ready    *bool                      `json:"ready,omitempty"` // nil: no plugin was asked
	Default  string                     `json:"defaultNetwork,omitempty"`
	Reason   string                     `json:"reason,omitempty"`
	Networks []podnet.ConfiguredNetwork `json:"networks"`
	Problems []shownProblem             `json:"problems"`
}

type shownProblem struct {
	Path    string `json:"path"`
	Problem string `json:"problem"`
	Kept    bool   `json:"kept"`
}

func describeNode(s podnet.NodeStatus) shownNode {
	out := shownNode{&s.Ready, s.Default, "", s.Networks, []shownProblem{}}
	if s.Err != nil {
		out.Reason = s.Err.Error()
	}
	for _, p := range s.Problems {
		out.Problems = append(out.Problems, shownProblem{p.Path, p.Err.Error(), p.Kept})
	}
	return out
}

func (a *app) nodeStatus(s podnet.NodeStatus) error {
	s.Err = unavailable(s.Err)
	err := a.printNode(s)
	if err == nil && a.structured() && s.Err != nil {
		return silentError{exitCode(s.Err)}
	}
	return errors.Join(err, s.Err)
}

func (a *app) printNode(s podnet.NodeStatus) error {
	if a.structured() {
		return a.printData(describeNode(s))
	}
	t := table{{"NETWORK", "FILE", "STATE"}}
	for _, n := range s.Networks {
		t = append(t, []string{n.Name, n.File, join(networkState(s, n))})
	}
	for _, p := range s.Problems {
		fmt.Fprintf(a.stderr, "fairlead: warning: %v\n", p)
	}
	return t.print(a.stdout)
}

func networkState(s podnet.NodeStatus, n podnet.ConfiguredNetwork) (words []string) {
	if n.Name == s.Default {
		words = append(words, "default")
		if s.Ready {
			words = append(words, "ready")
		}
	}
	if n.Kept {
		words = append(words, "the last valid version of the file")
	}
	return words
}

func (a *app) podWatch(f *podFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "watch", Short: "print the networks when the configuration changes",
		Long: "Watch prints what \"pod status\" prints, without asking plugins, now and after every change\n" +
			"of the configuration, until it is stopped. With --json it prints one line each time. With\n" +
			"--metrics-file it writes that file each time, too.",
		Example: "  fairlead pod watch --json | jq -c .problems",
		Args:    want(0, 0),
	}
	a.withManager(c, f, func(ctx context.Context, m *podnet.Manager, _ []string) error {
		var failed error
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		report := func(s podnet.NodeStatus) {
			if failed = errors.Join(a.printNodeLine(s), writeMetrics(f.metricsFile, nil, m)); failed != nil {
				cancel()
			}
		}
		report(m.Networks())
		_ = m.Watch(ctx, report) // it returns when the context ends
		return failed
	})
	c.GroupID = "node"
	return c
}

// printNodeLine prints a NodeStatus, with --json on one line.
func (a *app) printNodeLine(s podnet.NodeStatus) error {
	if !a.structured() {
		return a.printNode(s)
	}
	n := describeNode(s)
	n.Ready = nil
	return a.printLine(n)
}
