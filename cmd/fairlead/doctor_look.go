package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/doctor"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/inspect"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/kernel/packet"
)

// looker collects the facts that doctor judges.
type looker struct {
	*app
	container string
	probe     bool
	dir       *attach.Dir
	engine    *kernel.Engine // of the host alone
	facts     *doctor.Facts
	stores    []addressStore
	unseen    []string
}

func (l *looker) miss(what string, err error) {
	if err != nil {
		l.unseen = append(l.unseen, what+": "+err.Error())
	}
}

func (l *looker) look(ctx context.Context) (*doctor.Facts, error) {
	l.dir = attach.Open(l.getenv(attach.RootVariable))
	l.facts = &doctor.Facts{OtherBoot: l.dir.OtherBoots(), Sysctls: map[string]string{}}
	records, err := l.dir.List("")
	if err != nil {
		return nil, fmt.Errorf("%w\nThe records of attachments are root's. Type: sudo fairlead doctor", err)
	}
	if l.engine, err = kernel.Open(nil, kernel.Options{}); err != nil {
		return nil, err
	}
	defer l.engine.Close()
	if l.facts.Host, err = inspect.NewSurvey(l.engine, kernel.Host); err != nil {
		return nil, err
	}
	l.facts.Ruleset, err = inspect.ReadRuleset(l.engine)
	l.miss("the ruleset", err)
	l.sysctl("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables",
		"net/netfilter/nf_conntrack_count", "net/netfilter/nf_conntrack_max")
	l.facts.Upstream = l.upstream()
	gatherer := &collector{app: l.app, dir: l.dir, cni: l.runtime(l.pluginPath())}
	gatherer.cached, err = gatherer.cni.GetCachedAttachments("")
	l.miss("the cache of results", err)
	l.stores = gatherer.stores()
	for i, r := range records {
		if chosen(r, "", l.container) {
			done := l.working("doctor", i, len(records))
			l.facts.Attachments = append(l.facts.Attachments, l.attachment(ctx, r))
			done()
		}
	}
	if l.container == "" {
		l.networks(ctx, records)
	}
	return l.facts, nil
}

func (l *looker) sysctl(keys ...string) {
	for _, k := range keys {
		if v, err := l.engine.Sysctl(kernel.Host, k); err == nil {
			l.facts.Sysctls[k] = v
		}
	}
}

// isolated is what there is of an attachment to an isolated network.
func (l *looker) isolated(a *doctor.Attachment, r *attach.Record, list kernel.Objects) error {
	e, end, err := engineOf(l.dir, r)
	if err != nil {
		return err
	}
	defer end()
	a.Lost, err = e.Drift(list)
	return err
}

// attachment is what its record says, and what there is.
func (l *looker) attachment(ctx context.Context, r *attach.Record) *doctor.Attachment {
	a := &doctor.Attachment{Network: r.Network, Container: r.ContainerID, IfName: r.IfName, Netns: r.Netns, State: state(r)}
	list, err := objectsOf(r)
	l.miss("the record of "+r.ContainerID, err)
	a.Objects = list
	l.recorded(a, r)
	if a.State != stateOK {
		return a
	}
	if r.Host != "" { // its way does not lead through this host's rules
		l.miss("the objects of "+r.ContainerID, inHostOf(r, func() error { return l.isolated(a, r, list) }))
		return a
	}
	e, end, err := engineOf(l.dir, r)
	if err != nil {
		l.miss("the namespace of "+r.ContainerID, err)
		return a
	}
	defer end()
	a.Inside, err = inspect.NewSurvey(e, kernel.Container)
	l.miss("the namespace of "+r.ContainerID, err)
	a.Lost, err = e.Drift(list)
	l.miss("the objects of "+r.ContainerID, err)
	l.paths(a)
	l.resolv(a, r)
	a.LocalDNS = inspect.Listens(e, kernel.Container, 53)
	l.held(a, r)
	if l.probe {
		l.ping(ctx, a)
	}
	return a
}

// recorded fills in what the record tells.
func (l *looker) recorded(a *doctor.Attachment, r *attach.Record) {
	for _, v := range kernel.Of[*kernel.Veth](a.Objects) {
		if v.PeerSide == kernel.Container && v.PeerName == r.IfName {
			a.HostEnd, a.Bridge = v.Name, v.Master
		}
	}
	for _, addr := range kernel.Of[*kernel.Addr](a.Objects) {
		if addr.In == kernel.Container && addr.Link == r.IfName {
			a.Addrs = append(a.Addrs, addr.Prefix)
		}
	}
	for _, p := range r.Parts {
		a.Ports = append(a.Ports, p.Ports...)
		res, err := p.Result.Get()
		if err != nil || res == nil {
			continue
		}
		a.Gateways, a.Nameservers, a.Resolv = nil, nil, "the network's configuration (dns)"
		for _, ip := range res.IPs {
			if ip.Gateway.IsValid() {
				a.Gateways = append(a.Gateways, ip.Gateway)
			}
		}
		for _, i := range res.Interfaces {
			if i.Name == r.IfName && i.Sandbox != "" {
				a.MAC = i.Mac
			}
		}
		for _, s := range res.DNS.Nameservers {
			if ip, err := netip.ParseAddr(s); err == nil {
				a.Nameservers = append(a.Nameservers, ip)
			}
		}
	}
}

// The addresses, of those for documentation (RFC 5737, 3849), that stand for
// everything beyond the host.
func beyond(v4 bool) netip.Addr {
	if v4 {
		return netip.AddrFrom4([4]byte{192, 0, 2, 1})
	}
	return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 1})
}

// paths asks the host's routing for the container's packets, both ways.
func (l *looker) paths(a *doctor.Attachment) {
	in := 0
	for _, h := range l.facts.Host.Links {
		if h.Name == a.HostEnd && in == 0 {
			in = h.Index
			if h.Master != 0 {
				in = h.Master
			}
		}
	}
	if in == 0 {
		return
	}
	for _, p := range a.Addrs {
		path := doctor.Path{From: p.Addr()}
		var err error
		if path.Out, err = inspect.RoutePath(l.engine, beyond(p.Addr().Is4()), p.Addr(), in); err != nil {
			path.Err = err.Error()
		}
		if name, err := l.engine.LinkTo(p.Addr()); err == nil {
			for _, h := range l.facts.Host.Links {
				if h.Name == name {
					path.Back = h.Index
				}
			}
		}
		a.Paths = append(a.Paths, path)
		for _, h := range l.facts.Host.Links {
			if h.Index == in || h.Index == path.Out {
				l.sysctl("net/ipv4/conf/" + h.Name + "/forwarding")
			}
		}
	}
}

// resolv finds the container's name servers: in the file that it has for sure, or in
// its result.
func (l *looker) resolv(a *doctor.Attachment, r *attach.Record) {
	file := ""
	if name, ok := strings.CutPrefix(r.Netns, netnsDir+"/"); ok {
		file = "/etc/netns/" + name + "/resolv.conf"
	} else if pid, ok := strings.CutSuffix(r.Netns, "/ns/net"); ok && strings.HasPrefix(pid, "/proc/") {
		file = pid + "/root/etc/resolv.conf"
	}
	if list, err := nameservers(file); err == nil {
		a.Nameservers, a.Resolv = list, file
	}
}

func nameservers(file string) (out []netip.Addr, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		w := strings.Fields(lines.Text())
		if len(w) < 2 || w[0] != "nameserver" {
			continue
		}
		if ip, err := netip.ParseAddr(w[1]); err == nil {
			out = append(out, ip)
		}
	}
	return out, lines.Err()
}

// upstream are the host's own name servers that others can reach, too.
func (l *looker) upstream() (out []netip.Addr) {
	for _, file := range []string{"/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"} {
		list, _ := nameservers(file)
		for _, ip := range list {
			if !ip.IsLoopback() {
				out = append(out, ip)
			}
		}
	}
	return out
}

// held looks up who holds the addresses, where host-local gave them.
func (l *looker) held(a *doctor.Attachment, r *attach.Record) {
	local := false
	for _, p := range r.Parts {
		local = local || p.IPAM == "host-local"
	}
	for _, s := range l.stores {
		if !local || s.cluster || s.network != r.Network {
			continue
		}
		all, err := ipam.Held(s.dir, s.network)
		l.miss("addresses of "+r.Network, err)
		by := map[netip.Addr]ipam.Owner{}
		for _, h := range all {
			by[h.Addr] = h.Owner
		}
		for _, p := range a.Addrs {
			owner, ok := by[p.Addr()]
			a.Held = append(a.Held, doctor.HeldAddr{
				File: filepath.Join(s.dir, s.network, p.Addr().String()), Addr: p.Addr(),
				Owner: owner, Mine: ipam.Owner{ContainerID: r.ContainerID, IfName: r.IfName}, Free: !ok,
			})
		}
		return // the first that there is: see stores
	}
}

const pingWait = time.Second

func (l *looker) ping(ctx context.Context, a *doctor.Attachment) {
	ns, err := netns.Open(a.Netns)
	if err != nil {
		l.miss(a.Netns, err)
		return
	}
	defer ns.Close()
	for _, gw := range a.Gateways {
		err := packet.Ping(ctx, ns, gw, pingWait)
		if err != nil && !errors.Is(err, context.Canceled) {
			a.Silent = append(a.Silent, gw)
		}
	}
}
