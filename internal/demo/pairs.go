package demo

import (
	"context"
	"errors"
	"os"
)

// flannelLease is the file that flanneld would write for this host.
const (
	flannelFile  = "/run/flannel/subnet.env" // in the demo's own /run
	flannelLease = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n"
)

// more plays the example networks that conflict with the first ones: flannel's bridge has the same name, and minicni's
// subnet is part of my-network's.
func (s *stage) more(ctx context.Context) error {
	err := errors.Join(s.tool(ctx, "ip link del cni0"), os.MkdirAll("/run/flannel", 0o755), os.WriteFile(flannelFile, []byte(flannelLease), 0o644))
	if err != nil {
		return err
	}
	s.note("flanneld's file of this host's subnet, %s, says 10.244.3.1/24.", flannelFile)
	for _, pair := range [][3]string{{"cbr0", "web", "client"}, {"minicni", "db1", "db2"}} {
		if err := s.playPair(ctx, pair[0], pair[1], pair[2]); err != nil {
			return err
		}
	}
	return os.RemoveAll("/run/flannel")
}

// playPair attaches two containers to a network, verifies their traffic, and detaches them.
func (s *stage) playPair(ctx context.Context, network, a, b string) error {
	ip, err := s.attachAll(ctx, network, a, b)
	if err != nil {
		return err
	}
	took, err := s.ping(ctx, a, ip[b])
	if err != nil {
		return err
	}
	s.row(pad(a, 8)+"→ "+pad(b, 8)+"ping "+ip[b], "answers", took)
	if took, err = s.ping(ctx, b, worldAddress); err != nil {
		return err
	}
	s.row(pad(b, 8)+"→ "+pad("world", 8)+"ping "+worldAddress, "answers", took)
	for _, name := range []string{a, b} {
		if _, _, err := s.fairlead(ctx, nil, "del", network, name); err != nil {
			return err
		}
	}
	return nil
}

// attachAll adds containers to a network and returns their addresses.
func (s *stage) attachAll(ctx context.Context, network string, names ...string) (map[string]string, error) {
	ip := map[string]string{}
	for _, name := range names {
		out, took, err := s.fairlead(ctx, nil, "add", network, name)
		if err != nil {
			return nil, err
		}
		address, err := addressIn(out)
		if err != nil {
			return nil, err
		}
		ip[name] = (&cast{address: address}).ip()
		s.command("fairlead add "+network+" "+name, "eth0 "+address, took)
	}
	return ip, nil
}
