package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/kernel/nflog"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// dropLog prints dropped packets.
type dropLog struct {
	a     *app
	f     *policyLogFlags
	table *nftable.Programmer
	names func(netip.Addr) (pod, node string)
	done  func()

	shown int
	known uint64 // packets that the kernel has not reported
}

// dropped is a dropped packet.
type dropped struct {
	Time        time.Time `json:"time"`
	Network     string    `json:"network,omitempty"` // isolated
	Direction   string    `json:"direction"`
	Source      logEnd    `json:"source"`
	Destination logEnd    `json:"destination"`
	Protocol    string    `json:"protocol"`
	Reason      string    `json:"reason"`
	Policies    []string  `json:"policies,omitempty"`
	Rule        string    `json:"rule,omitempty"`
}

// logEnd is one end of a dropped packet.
type logEnd struct {
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port,omitempty"`
	Pod     string     `json:"pod,omitempty"`
	Node    string     `json:"node,omitempty"`
}

func (e logEnd) String() string {
	text := e.Address.String()
	if e.Port != 0 {
		text = netip.AddrPortFrom(e.Address, e.Port).String()
	}
	switch {
	case e.Pod != "":
		return e.Pod + " (" + text + ")"
	case e.Node != "":
		return "node " + e.Node + " (" + text + ")"
	}
	return text
}

// notReported tells how many packets are missing.
type notReported struct {
	Time       time.Time `json:"time"`
	Unreported uint64    `json:"unreported"`
}

const unreportedEvery = time.Second // how often the number of packets that were not reported is read

// run prints packets until the context ends.
func (l *dropLog) run(ctx context.Context, listener *nflog.Listener) error {
	type packet struct {
		*nflog.Packet
		lost int
	}
	packets, ended := make(chan packet), make(chan error, 1)
	go func() {
		ended <- listener.Run(ctx, func(p *nflog.Packet, lost int) {
			select {
			case packets <- packet{p, lost}:
			case <-ctx.Done():
			}
		})
	}()
	tick := time.NewTicker(unreportedEvery)
	defer tick.Stop()
	for {
		var err error
		select {
		case err = <-ended:
			if ctx.Err() == nil {
				return err
			}
			return l.unreported()
		case p := <-packets:
			if err = l.missing(uint64(p.lost)); err == nil {
				err = l.packet(p.Packet)
			}
		case <-tick.C:
			err = l.unreported()
		}
		if err != nil {
			return err
		}
	}
}

// packet prints a packet if the user wants it.
func (l *dropLog) packet(p *nflog.Packet) error {
	r, err := policy.ParseReason(p.Prefix)
	if err != nil {
		return nil // somebody else's rule uses the group
	}
	d := dropped{p.Time, l.f.network, r.Direction, l.end(p.Src, p.SrcPort), l.end(p.Dst, p.DstPort), p.Protocol, r.Text, r.Policies, r.Rule}
	if !l.f.wants(d, r) || l.f.count > 0 && l.shown == l.f.count {
		return nil
	}
	if l.shown++; l.shown == l.f.count {
		l.done()
	}
	where := d.Direction
	if d.Network != "" {
		where = "network " + d.Network + ", " + where
	}
	return l.print(d, fmt.Sprintf("%s  %s -> %s %s, %s: %s", d.Time.Format("15:04:05.000"), d.Source, d.Destination, d.Protocol, where, d.Reason))
}

func (l *dropLog) end(a netip.Addr, port uint16) logEnd {
	pod, node := l.names(a)
	return logEnd{a, port, pod, node}
}

// wants applies the filters. If not all policies are known, one of the others may be the wanted one.
func (f *policyLogFlags) wants(d dropped, r policy.Reason) bool {
	if f.pod != "" && f.pod != d.Source.Pod && f.pod != d.Destination.Pod {
		return false
	}
	switch {
	case f.policy == "" || r.Isolated && r.Cut:
		return true
	case r.Cut && len(r.Policies) == 0: // the text ends within the name of a ClusterNetworkPolicy
		kind := policy.ClusterPolicyID("")
		return strings.HasPrefix(kind+strings.TrimPrefix(f.policy, kind), strings.TrimSuffix(r.Text, "…"))
	}
	return slices.ContainsFunc(r.Policies, func(id string) bool { return id == f.policy || strings.HasSuffix(id, " "+f.policy) })
}

func (l *dropLog) print(v any, text string) error {
	if l.a.structured() {
		return l.a.printLine(v)
	}
	_, err := fmt.Fprintln(l.a.stdout, text)
	return err
}

// unreported prints how many packets the kernel has not reported since the last call. The first call prints nothing.
func (l *dropLog) unreported() error {
	list, err := l.table.Counters(policy.TableFamily, policy.TableName, policy.UnreportedChain)
	switch {
	case errors.Is(err, os.ErrNotExist):
		err = errNoPolicy
	case err == nil && len(list) == 0:
		err = errors.New("the rules on this node report no dropped packets: its kernel lacks nft_log, nft_limit or nfnetlink_log, or its agent is older than this program")
	}
	if l.names == nil { // before the first packet
		if err == nil {
			l.known = list[0].Packets
		}
		return err
	}
	if err != nil {
		return nil // the table may come back
	}
	before := l.known
	if l.known = list[0].Packets; l.known < before {
		before = 0 // the table is a new one
	}
	return l.missing(l.known - before)
}

func (l *dropLog) missing(n uint64) error {
	if n == 0 {
		return nil
	}
	return l.print(notReported{time.Now(), n}, fmt.Sprintf("%d more packets were dropped and not reported", n))
}
