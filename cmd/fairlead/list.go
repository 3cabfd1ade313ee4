package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/netnspath"
	"github.com/fairlead/fairlead/kernel"
)

// listed is an attachment as list prints it.
type listed struct {
	Network   string        `json:"network"`
	Container string        `json:"container"`
	IfName    string        `json:"ifname"`
	Link      string        `json:"link,omitempty"` // name of the container's link, if it is not IfName
	Netns     string        `json:"netns"`
	Addresses []string      `json:"addresses"`
	Ports     []attach.Port `json:"hostPorts"`
	Created   time.Time     `json:"created"`
	Age       int           `json:"ageSeconds"`
	State     string        `json:"state"`
}

func (a *app) listCommand() *cobra.Command {
	s := selection{app: a}
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "list the attachments on this host", GroupID: "look",
		Long: `List prints the attachments that plugins of Fairlead created on this host. An attachment
that was added with "fairlead add" is shown by the name of its namespace. The states:

  ok              the attachment and its namespace exist
  namespace gone  the container is gone and nobody detached it: gc removes the attachment
  adding          an add is running
  interrupted     an add was killed: del or gc removes what it left
  staged          the link is on the host, until Docker moves it into the container`,
		Example: "  fairlead list\n  fairlead list -o wide\n  fairlead list --network my-network\n  fairlead list --json | jq -r '.[].addresses[]'",
		Args:    want(0, 0),
		RunE: func(*cobra.Command, []string) error {
			records, err := s.records(attach.Open(a.getenv(attach.RootVariable)))
			if err != nil {
				return err
			}
			var list []listed
			for _, r := range records {
				list = append(list, describe(r))
			}
			if len(list) == 0 && !a.structured() && s.network+s.container != "" {
				_, err := fmt.Fprintln(a.stdout, "No such attachment. To see all: fairlead list")
				return err
			}
			return a.printList(list)
		},
	}
	s.flags(c)
	return c
}

// selection chooses attachments by flags.
type selection struct {
	*app
	network, container string
}

func (s *selection) flags(c *cobra.Command) {
	c.Flags().StringVar(&s.network, "network", "", "Only attachments to this network, given by its name or file.")
	c.Flags().StringVar(&s.container, "container", "", "Only attachments of this container: the beginning of its ID, or the path or name of its namespace.")
	_ = c.RegisterFlagCompletionFunc("network", func(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return s.completeAttachment(c, nil, typed)
	})
	_ = c.RegisterFlagCompletionFunc("container", func(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return s.completeContainers(c, nil, typed)
	})
}

// String describes the chosen attachments.
func (s *selection) String() string {
	text := ""
	if s.container != "" {
		text = " of a container " + s.container
	}
	if s.network != "" {
		text += " to a network " + s.network
	}
	return text
}

// records returns the records of the chosen attachments.
func (s *selection) records(dir *attach.Dir) (out []*attach.Record, err error) {
	network, err := s.networkName(s.network)
	if err != nil {
		return nil, err
	}
	records, damaged, err := dir.Scan(network)
	if err != nil {
		return nil, err
	}
	for _, x := range damaged {
		if x.Err != nil {
			fmt.Fprintf(s.stderr, "fairlead: warning: a record that cannot be read is skipped: %v\n", x.Err)
			continue
		}
		fmt.Fprintf(s.stderr, "fairlead: warning: a damaged record is skipped: %s (fairlead doctor)\n", x.File)
	}
	var namespaces attach.Namespaces
	for _, r := range records {
		if isContainer(r, s.container) {
			err = errors.Join(err, namespaces.Follow(r))
			out = append(out, r)
		}
	}
	return out, err
}

// isContainer reports whether a record belongs to a container that the user named. Every container is "".
func isContainer(r *attach.Record, name string) bool {
	named := filepath.Base(r.Netns) == name && !strings.HasPrefix(r.Netns, "/proc/") // there, all have one name
	return name == "" || strings.HasPrefix(r.ContainerID, name) || named || r.Netns == name
}

func describe(r *attach.Record) listed {
	l := listed{
		Network: r.Network, Container: r.ContainerID, IfName: r.IfName, Link: r.Link, Netns: r.Netns,
		Addresses: []string{}, Ports: []attach.Port{},
		Created: r.Created, Age: int((kernel.Uptime() - r.Since).Seconds()), State: r.State(),
	}
	var last *cni.Result
	for _, p := range r.Parts {
		l.Ports = append(l.Ports, p.Ports...)
		if r, err := p.Result.Get(); err == nil && r != nil {
			last = r
		}
	}
	if last != nil {
		for _, ip := range last.IPs {
			l.Addresses = append(l.Addresses, ip.Address.String())
		}
	}
	return l
}

func (a *app) printList(list []listed) error {
	if a.structured() {
		return a.printData(list)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(a.stdout, "No attachments. To create one: fairlead add NETWORK NETNS")
		return err
	}
	t := table{{"NETWORK", "CONTAINER", "INTERFACE", "ADDRESSES", "HOST PORTS", "AGE", "STATE", "NAMESPACE", "CREATED"}}
	for _, l := range list {
		t = append(t, []string{l.Network, shownName(l.Container, l.Netns), cmp.Or(l.Link, l.IfName), join(l.Addresses), ports(l.Ports), age(l.Age), l.State,
			l.Netns, l.Created.Format(time.RFC3339)})
	}
	return a.printTable(t, 7)
}

// shownName returns the name of a container for people. The ID of a container that was added with "fairlead add" says less
// than the name of its namespace.
func shownName(container, netns string) string {
	if strings.HasPrefix(container, "cnitool-") && container == containerID(netns) {
		return strings.TrimPrefix(netns, netnspath.Dir+"/")
	}
	return container
}

// count returns a number with its noun, such as "1 object" or "2 objects".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func ports(list []attach.Port) string {
	var words []string
	for _, p := range list {
		from := strconv.Itoa(p.HostPort)
		if ip, err := netip.ParseAddr(p.HostIP); err == nil && !ip.IsUnspecified() {
			from = net.JoinHostPort(p.HostIP, from)
		}
		words = append(words, fmt.Sprintf("%s->%d/%s", from, p.ContainerPort, p.Protocol))
	}
	return join(words)
}

func age(seconds int) string {
	switch {
	case seconds < 120:
		return fmt.Sprintf("%ds", seconds)
	case seconds < 2*3600:
		return fmt.Sprintf("%dm", seconds/60)
	case seconds < 48*3600:
		return fmt.Sprintf("%dh", seconds/3600)
	}
	return fmt.Sprintf("%dd", seconds/86400)
}
