package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/cni/wire"
)

const portmap = "portmap"

// portBinding is a published port: docker run --publish.
type portBinding struct {
	Proto       int // protocol number of IANA
	Port        int
	HostIP      string
	HostPort    int // 0: any free one
	HostPortEnd int // the last port of a range of which any free one is wanted
}

func (b *portBinding) protocol() (string, error) {
	switch b.Proto {
	case 6:
		return "tcp", nil
	case 17:
		return "udp", nil
	case 132:
		return "sctp", nil
	}
	return "", fmt.Errorf("port %d: protocol %d: want 6 (TCP), 17 (UDP) or 132 (SCTP)", b.Port, b.Proto)
}

// candidates returns the host ports that a binding may get: one, a range, or any port for connections. Docker's own
// bridge chooses upwards from the first of them, so this driver chooses downwards from the last.
func (b *portBinding) candidates() (first, last, step int) {
	switch {
	case b.HostPort == 0:
		return lastEphemeral, firstEphemeral, -1
	case b.HostPortEnd > b.HostPort:
		return b.HostPort, b.HostPortEnd, 1
	}
	return b.HostPort, b.HostPort, 0
}

// The usual range of ports that the kernel chooses for connections, ip(7): ip_local_port_range.
const (
	firstEphemeral = 32768
	lastEphemeral  = 60999
)

// publish forwards the published ports of the endpoint that has the container's default route.
func (d *Driver) publish(ctx context.Context, q *endpointRequest) (any, error) {
	e, n, err := d.known(q.NetworkID, q.EndpointID)
	if err != nil {
		return nil, err
	}
	var bindings []portBinding
	if raw, ok := q.Options[portMapOption]; ok {
		if err := json.Unmarshal(raw, &bindings); err != nil {
			return nil, fmt.Errorf("%s: want a list of ports: %w", portMapOption, err)
		}
	}
	if len(bindings) == 0 {
		return none{}, nil
	}
	if n.Type != typeBridge && n.Type != typeCluster || n.Plugin["type"] == "fairlead-net" {
		// Not an error: dockerd joins a container's networks in random order, and asks the first one, too.
		d.log("endpoint %s: network %s publishes no ports: containers are reached at their own addresses", e.ID, n.Name)
		return none{}, nil
	}
	defer d.locks.lock(e.ID)()
	defer d.locks.lock(portsLock)() // of two containers, one gets a free port
	record, err := d.records.Read(e.owner(n))
	if err != nil {
		return nil, fmt.Errorf("endpoint %s is not attached: %w", e.ID, err)
	}
	if record.Last(portmap) >= 0 {
		if err := d.runPortmap(ctx, "DEL", record, nil); err != nil {
			return nil, err
		}
	}
	ports, err := d.choose(record, bindings)
	if err != nil {
		return nil, err
	}
	return none{}, d.runPortmap(ctx, "ADD", record, ports)
}

const portsLock = "the ports"

// unpublish removes the forwarding again.
func (d *Driver) unpublish(ctx context.Context, q *endpointRequest) (any, error) {
	e, n, err := d.known(q.NetworkID, q.EndpointID)
	if err != nil {
		return d.gone(q)
	}
	defer d.locks.lock(e.ID)()
	record, err := d.records.Read(e.owner(n))
	if errors.Is(err, os.ErrNotExist) || err == nil && record.Last(portmap) < 0 {
		return none{}, nil
	}
	if err != nil {
		return nil, err
	}
	return none{}, d.runPortmap(ctx, "DEL", record, nil)
}

// choose returns a host port for each binding.
func (d *Driver) choose(record *attach.Record, bindings []portBinding) (out []attach.Port, err error) {
	taken, err := d.takenPorts(record)
	if err != nil {
		return nil, err
	}
	takeFixed(taken, bindings)
	for _, b := range bindings {
		p := attach.Port{HostIP: b.HostIP, ContainerPort: b.Port}
		if p.Protocol, err = b.protocol(); err != nil {
			return nil, err
		}
		first, last, step := b.candidates()
		if p.HostPort = first; step == 0 {
			used, err := listens(p)
			if err != nil {
				return nil, fmt.Errorf("port %d/%s: is port %d of the host free? %w", b.Port, p.Protocol, first, err)
			}
			if used {
				return nil, fmt.Errorf("port %d/%s: a program of the host listens at port %d: stop it, or publish another port", b.Port, p.Protocol, first)
			}
		}
		for p.HostPort = first; step != 0; p.HostPort += step {
			used := taken[portKey(p)]
			if !used {
				if used, err = listens(p); err != nil {
					return nil, fmt.Errorf("port %d/%s: is port %d of the host free? %w", b.Port, p.Protocol, p.HostPort, err)
				}
			}
			if !used {
				break
			}
			if p.HostPort == last {
				return nil, fmt.Errorf("port %d/%s: no port from %d to %d of the host is free", b.Port, p.Protocol, min(first, last), max(first, last))
			}
		}
		taken[portKey(p)] = true
		out = append(out, p)
	}
	return out, nil
}

// takeFixed takes the ports of the bindings that have no choice, so that the others leave them.
func takeFixed(taken map[string]bool, bindings []portBinding) {
	for _, b := range bindings {
		if _, _, step := b.candidates(); step == 0 {
			protocol, _ := b.protocol() // an unknown one is an error later
			taken[portKey(attach.Port{Protocol: protocol, HostPort: b.HostPort})] = true
		}
	}
}

// listens reports whether a program, such as Docker's proxy for its own bridge, listens at the address and port that a
// container publishes.
func listens(p attach.Port) (_ bool, err error) {
	address := net.JoinHostPort(p.HostIP, strconv.Itoa(p.HostPort))
	var l io.Closer
	switch p.Protocol {
	case "tcp":
		l, err = net.Listen("tcp", address)
	case "udp":
		l, err = net.ListenPacket("udp", address)
	default:
		return false, nil
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return true, nil
	}
	if err == nil {
		_ = l.Close() // it has received nothing
	}
	return false, err
}

// portKey ignores the host's address: a port that is taken on one address is not free.
func portKey(p attach.Port) string { return fmt.Sprintf("%s %d", p.Protocol, p.HostPort) }

// takenPorts returns the host ports of all other attachments.
func (d *Driver) takenPorts(except *attach.Record) (map[string]bool, error) {
	all, err := d.records.List("")
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, r := range all {
		for _, part := range r.Parts {
			for _, p := range part.Ports {
				if r.Owner() != except.Owner() {
					taken[portKey(p)] = true
				}
			}
		}
	}
	return taken, nil
}

// runPortmap runs the plugin portmap for an attachment that exists.
func (d *Driver) runPortmap(ctx context.Context, command string, record *attach.Record, ports []attach.Port) error {
	exec, path, err := d.find(portmap)
	if err != nil {
		return err
	}
	res, err := record.Parts[0].Result.Get()
	if err != nil {
		return err
	}
	prev, err := wire.EncodeValue(res, cni.Current)
	if err != nil {
		return err
	}
	conf, err := json.Marshal(map[string]any{
		"cniVersion": cni.Current, "name": record.Network, "type": portmap, "prevResult": prev,
		"runtimeConfig": map[string]any{"portMappings": ports},
	})
	if err != nil {
		return err
	}
	args := &invoke.Args{
		Command: command, ContainerID: record.ContainerID, NetNS: d.netnsOf(record), IfName: record.IfName,
		Path: strings.Join(d.o.Path, string(filepath.ListSeparator)),
	}
	_, err = exec.ExecPlugin(ctx, path, conf, append(args.AsEnv(), "CNI_NETNS_OVERRIDE=1"))
	return err
}

// netnsOf returns the path of the namespace in which an attachment's link is.
func (d *Driver) netnsOf(record *attach.Record) string {
	if record.Staged {
		return d.hostPath()
	}
	return record.Netns
}

func (d *Driver) find(plugin string) (invoke.Exec, string, error) {
	path, err := invoke.FindInPath(plugin, d.o.Path)
	return d.o.Exec, path, err
}
