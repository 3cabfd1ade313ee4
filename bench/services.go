package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/bench/figures"
)

// These functions start what the examples with DHCP and Open vSwitch require on their hosts. A side's sockets and files
// contain its name.

// serve starts a program on a host, which ends with the world. It returns when the program's file exists, or at once if
// file is "".
func (w *world) serve(netns, file string, env []string, argv ...string) error {
	cmd := exec.Command("nsenter", append([]string{"--net=" + netns, "--"}, argv...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", argv[0], err)
	}
	w.served = append(w.served, cmd)
	for end := time.Now().Add(10 * time.Second); file != ""; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(file); err == nil {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s did not create %s: is it installed?", argv[0], file)
		}
	}
	return nil
}

// servers starts dnsmasq in a namespace whose eth0 has the address.
func (w *world) servers(netns, word, addr, from, to string) error {
	if err := inside(netns, "addr add "+addr+"/24 dev eth0\nlink set eth0 up", "ip", "-batch", "-"); err != nil {
		return err
	}
	leases := "/run/leases-" + word
	return w.serve(netns, leases, nil, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--no-ping", "--user=root", "--pid-file=",
		"--bind-dynamic", "--interface=eth0", "--dhcp-authoritative", "--dhcp-leasefile="+leases, "--dhcp-range="+from+","+to+",255.255.255.0,1h")
}

// daemon starts the side's own DHCP daemon.
func (w *world) daemon(s *side) error {
	argv := []string{filepath.Join(w.programs, "fairlead"), "dhcp-daemon", "--socketpath", "/run/dhcp-" + s.word + ".sock"}
	if s.plugins == "reference" {
		argv = []string{filepath.Join(w.programs, "reference", "dhcp"), "daemon", "-socketpath", "/run/dhcp-" + s.word + ".sock"}
	}
	return w.serve(s.host, "/run/dhcp-"+s.word+".sock", []string{"FAIRLEAD_RUN=/run/fairlead/" + s.word}, argv...)
}

// wan creates what 30-wan.conf requires: an eth0 with a DHCP server behind it.
func wan(w *world) error {
	for _, s := range w.sides {
		lan := "lan-" + s.word
		if err := w.namespaces(lan); err != nil {
			return err
		}
		if err := inside(s.host, "link add eth0 type veth peer name eth0 netns "+w.netns[lan]+"\nlink set eth0 up", "ip", "-batch", "-"); err != nil {
			return err
		}
		if s.name == figures.Floor {
			continue
		}
		if err := errors.Join(w.servers(w.netns[lan], s.word, "10.0.0.1", "10.0.0.50", "10.0.0.250"), w.daemon(s)); err != nil {
			return err
		}
	}
	return nil
}

// openVSwitch creates what 40-pci-ovs.conf requires: an Open vSwitch bridge with a DHCP server.
func openVSwitch(w *world) error {
	for _, s := range w.sides {
		if s.name == figures.Floor {
			continue
		}
		dir, lan := "/run/ovs-"+s.word, "lan-"+s.word
		if err := errors.Join(os.MkdirAll(dir, 0o755), w.namespaces(lan)); err != nil {
			return err
		}
		if err := w.switchAt(s, dir); err != nil {
			return err
		}
		datapath := "system"
		if inside(s.host, "", "genl", "ctrl", "get", "name", "ovs_datapath") != nil {
			datapath = "netdev"
		}
		outside := "link add lan0 type veth peer name eth0 netns " + w.netns[lan] + "\nlink set lan0 up"
		if err := errors.Join(
			inside(s.host, outside, "ip", "-batch", "-"),
			inside(s.host, "", "ovs-vsctl", "--db=unix:"+dir+"/db.sock", "--timeout=20", "add-br", "ovs0", "--", "set", "bridge", "ovs0", "datapath_type="+datapath, "--", "add-port", "ovs0", "lan0"),
			w.servers(w.netns[lan], s.word, "10.3.0.1", "10.3.0.50", "10.3.0.250"), w.daemon(s)); err != nil {
			return err
		}
	}
	return nil
}

// switchAt starts Open vSwitch with its files in a directory.
func (w *world) switchAt(s *side, dir string) error {
	env := []string{"OVS_RUNDIR=" + dir, "OVS_LOGDIR=" + dir, "OVS_DBDIR=" + dir, "OVS_SYSCONFDIR=" + dir, "PATH=" + os.Getenv("PATH") + ":/usr/sbin"}
	sock := dir + "/db.sock"
	if err := inside(s.host, "", "ovsdb-tool", "create", dir+"/conf.db", "/usr/share/openvswitch/vswitch.ovsschema"); err != nil {
		return err
	}
	if err := w.serve(s.host, sock, env, "ovsdb-server", dir+"/conf.db", "--remote=punix:"+sock, "--unixctl="+dir+"/db.ctl", "--no-chdir"); err != nil {
		return err
	}
	if err := inside(s.host, "", "ovs-vsctl", "--db=unix:"+sock, "--no-wait", "init"); err != nil {
		return err
	}
	return w.serve(s.host, dir+"/sw.ctl", env, "ovs-vswitchd", "unix:"+sock, "--unixctl="+dir+"/sw.ctl", "--no-chdir")
}

// withSockets puts a side's own sockets into an example.
func withSockets(list string) string {
	return strings.NewReplacer(`"type": "dhcp",`, `"type": "dhcp", "daemonSocketPath": "/run/dhcp-$SIDE.sock",`,
		`"type": "ovs",`, `"type": "ovs", "socket_file": "/run/ovs-$SIDE/db.sock",`).Replace(list)
}
