package main

import (
	"fmt"
	"log"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/plugins/ipam"
	"github.com/fairlead/fairlead/plugins/ipam/dhcpd"
)

const dhcpLong = `Dhcp-daemon keeps the DHCP leases of containers whose network has "ipam": {"type": "dhcp"}. It
obtains leases, renews them, and releases them on del. It listens on a socket, which systemd may pass to
it (see contrib/systemd), and runs until it is stopped. Leases outlast it: the next daemon takes
them over. The plugin's own form, "/opt/cni/bin/dhcp daemon", is the same command with the same flags.
docs/plugins/dhcp.md has the details.`

const dhcpExample = `  fairlead dhcp-daemon                           # listen on /run/cni/dhcp.sock
  fairlead dhcp-daemon --socketpath /run/my.sock --resendtimeout 30s
  fairlead dhcp-daemon status                    # show its leases
  fairlead dhcp-daemon status --json | jq -r '.[] | select(.state == "lost") | .container'`

func (a *app) dhcpCommand() *cobra.Command {
	o := dhcpd.Options{}
	c := &cobra.Command{
		Use: "dhcp-daemon", Short: "run the daemon that keeps DHCP leases", GroupID: "more", Long: dhcpLong, Example: dhcpExample,
		Args: want(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			lines := log.New(a.stderr, "", log.LstdFlags)
			o.Log = func(line string) { lines.Print(line) }
			return dhcpd.Run(c.Context(), o, a.getenv)
		},
	}
	f := c.Flags()
	c.PersistentFlags().StringVar(&o.SocketPath, "socketpath", ipam.DefaultDHCPSocket, "Socket to listen on; for status, the socket to ask at.")
	c.PersistentFlags().StringVar(&o.HostPrefix, "hostprefix", "", "Prefix of the paths of the socket and of namespaces, for a daemon in a container.")
	f.StringVar(&o.PIDFile, "pidfile", "", "File to write the process ID to.")
	f.BoolVar(&o.Broadcast, "broadcast", false, "Ask servers to answer by broadcast.")
	durationVar(f, &o.Timeout, "timeout", 10*time.Second, "Longest wait for one answer.")
	durationVar(f, &o.ResendMax, "resendmax", 62*time.Second, "Longest pause between two messages.")
	durationVar(f, &o.ResendTimeout, "resendtimeout", 208*time.Second, "Time after which an add gives up.")
	f.StringVar(&o.Leases, "leases", "", "Directory of leases (default: below FAIRLEAD_RUN/dhcp, named after the socket).")
	mayBeEmpty(c.PersistentFlags(), "hostprefix")
	mayBeEmpty(f, "pidfile")
	c.AddCommand(a.dhcpStatusCommand(&o))
	return c
}

func (a *app) dhcpStatusCommand(o *dhcpd.Options) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "show the leases of a daemon",
		Long: `Status prints the leases of the daemon at --socketpath. A lease is "held", or "waiting" for a
server, or "lost": the server withdrew a part of it, the container cannot use that part, and the daemon
tries to obtain it again.`,
		Example: "  fairlead dhcp-daemon status\n  fairlead dhcp-daemon status --json",
		Args:    want(0, 0),
		RunE: func(*cobra.Command, []string) error {
			list, err := dhcpd.List(o.HostPrefix + o.SocketPath)
			if err != nil {
				return fmt.Errorf("%w\nStart it: systemctl start fairlead-dhcp.socket; without systemd: fairlead dhcp-daemon", err)
			}
			return a.printLeases(list)
		},
	}
}

func (a *app) printLeases(list []dhcpd.State) error {
	if a.structured() {
		return a.printData(list)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(a.stdout, "No leases. A container gets one on a network whose ipam type is dhcp.")
		return err
	}
	t := table{{"NETWORK", "CONTAINER", "INTERFACE", "ADDRESSES", "STATE", "RENEWED IN", "ENDS IN"}}
	for _, l := range list {
		t = append(t, []string{l.Network, l.Container, l.IfName, join(l.Addresses), l.State, until(l.Renew), until(l.Expire)})
	}
	if err := t.print(a.stdout); err != nil {
		return err
	}
	for _, l := range list {
		if l.Lost != "" {
			fmt.Fprintf(a.stdout, "%s %s: %s\n", l.Container, l.IfName, l.Lost)
		}
	}
	return nil
}

// until returns the time until an event in the form of list.
func until(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return age(max(0, int(time.Until(t).Seconds())))
}
