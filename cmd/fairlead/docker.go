package main

import (
	"log"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/docker"
	"github.com/fairlead/fairlead/internal/builtin"
	"github.com/fairlead/fairlead/kernel"
)

const dockerLong = `Docker-plugin is a network driver and an IPAM driver for Docker. Docker's containers then
join Fairlead's networks: bridge, macvlan, ipvlan, vlan, Open vSwitch, and networks of the cluster, which
they share with pods. It listens on a socket, which systemd may pass to it (see contrib/systemd), and runs
until it is stopped. Containers keep their networks while it does not run. The file name of the
socket, without .sock, is the name of the driver. docs/docker.md has the details.`

const dockerExample = `  fairlead docker-plugin
  docker network create -d fairlead --ipam-driver fairlead --subnet 10.20.0.0/24 web
  docker network create -d fairlead -o type=macvlan -o parent=eth1 --subnet 192.0.2.0/24 lan
  docker network create -d fairlead -o type=cluster -o network=blue --ipam-driver null blue
  docker run --rm --network web --publish 8080:80 nginx
  fairlead list                          # show the endpoints of Docker`

func (a *app) dockerCommand() *cobra.Command {
	o := docker.Options{}
	var sysctlDir, hostRoot string
	c := &cobra.Command{
		Use: "docker-plugin", Short: "run the network driver for Docker", GroupID: "more", Long: dockerLong, Example: dockerExample,
		Args: want(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			kernel.UseSysctlDir(sysctlDir)
			kernel.UseProgramsBelow(hostRoot)
			lines := log.New(a.stderr, "", log.LstdFlags)
			o.Log = func(line string) { lines.Print(line) }
			o.RunDir, o.LibDir = a.getenv(attach.RootVariable), a.libDir()
			o.Path, o.Exec = a.pluginPath(), builtin.Exec()
			return docker.Run(c.Context(), o, a.getenv)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Socket, "socket", docker.DefaultSocket, "Socket to listen on. Its name without .sock is the driver's name.")
	f.StringVar(&o.Docker, "docker", "/run/docker.sock", "Socket of Docker's API, to find objects that Docker has forgotten. Empty: do not search for them.")
	durationVar(f, &o.Interval, "interval", 30*time.Second, "Time between two comparisons with Docker.")
	durationVar(f, &o.Grace, "grace", 5*time.Minute, "Remove an object that Docker does not know after this time.")
	f.StringVar(&sysctlDir, "sysctl-dir", "/proc/sys", "Directory of the kernel's settings. A plugin that Docker manages mounts the writable settings elsewhere.")
	f.StringVar(&hostRoot, "host-root", "", "Root directory of the host, whose iptables and nft the driver runs. A plugin that Docker manages has none of its own (default: its own root).")
	mayBeEmpty(f, "docker", "host-root")
	return c
}
