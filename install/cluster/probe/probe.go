// Package probe is what runs in the pods of a check: one pod on each node listens, and another connects to the listeners
// of the other nodes, to the nodes, to a Service and to the cluster's DNS.
package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Targets are the addresses that the pods connect to. All pods get the same ones.
type Targets struct {
	Pods  []Target `json:"pods"`  // the listening pods
	Hosts []Target `json:"hosts"` // the nodes' addresses with the kubelet's port
	// Services are the addresses of the API server's Service, with the port.
	Services []netip.AddrPort `json:"services"`
	DNS      string           `json:"dns,omitempty"` // name to resolve; "": the cluster has no DNS
	Seconds  int              `json:"seconds"`       // for each kind of target
}

// Target is a node with addresses to connect to.
type Target struct {
	Node      string           `json:"node"`
	Addresses []netip.AddrPort `json:"addresses"`
}

// Result is the result of one pod. It is one line of its log.
type Result struct {
	Node    string  `json:"node"`
	Pods    Outcome `json:"pods"`
	Hosts   Outcome `json:"hosts"`
	Service Outcome `json:"service"`
	DNS     Outcome `json:"dns"`
}

// Outcome counts the connections to the targets of one kind.
type Outcome struct {
	Tried  int      `json:"tried"`
	OK     int      `json:"ok"`
	Errors []string `json:"errors,omitempty"`
}

// MaxPeers is the number of other nodes that one pod connects to. In a larger cluster, each node connects to the nodes
// that follow it in the order of their names, so every node has as many connections to it as from it.
const MaxPeers = 100

// maxErrors is the number of errors of one kind in a result.
const maxErrors = 10

// greeting is the text that a listener sends.
const greeting = "fairlead-check "

// Listen accepts connections at an address until the context ends, and answers with the node's name.
func Listen(ctx context.Context, address, node string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		go func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(attempt))
			_, _ = io.WriteString(c, greeting+node)
		}()
	}
}

// Timing of the attempts.
const (
	attempt = 3 * time.Second
	pause   = 500 * time.Millisecond
)

// Run connects to the targets, from a node. It repeats what fails until the time of the targets is over: the network of
// a node that has just joined takes a moment.
func Run(ctx context.Context, node string, t Targets) Result {
	r := Result{Node: node}
	var wait sync.WaitGroup
	start := func(o *Outcome, checks []check) {
		wait.Go(func() { o.run(ctx, time.Duration(t.Seconds)*time.Second, checks) })
	}
	var pods, hosts, services, dns []check
	for _, x := range others(t.Pods, node) {
		for _, a := range x.Addresses {
			pods = append(pods, check{fmt.Sprintf("pod %s on node %s", a.Addr(), x.Node), func(ctx context.Context) error { return greet(ctx, a, x.Node) }})
		}
	}
	for _, x := range others(t.Hosts, node) {
		for _, a := range x.Addresses {
			hosts = append(hosts, check{fmt.Sprintf("node %s at %s", x.Node, a), func(ctx context.Context) error { return reach(ctx, a) }})
		}
	}
	for _, a := range t.Services {
		services = append(services, check{fmt.Sprintf("Service kubernetes at %s", a), func(ctx context.Context) error { return handshake(ctx, a) }})
	}
	if t.DNS != "" {
		dns = []check{{"DNS name " + t.DNS, func(ctx context.Context) error { return resolve(ctx, t.DNS) }}}
	}
	start(&r.Pods, pods)
	start(&r.Hosts, hosts)
	start(&r.Service, services)
	start(&r.DNS, dns)
	wait.Wait()
	return r
}

// others returns the targets that a node connects to: at most MaxPeers, without itself, from the next one on.
func others(all []Target, node string) []Target {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Target) int { return strings.Compare(a.Node, b.Node) })
	i := slices.IndexFunc(all, func(t Target) bool { return t.Node > node })
	if i < 0 {
		i = len(all)
	}
	ring := append(all[i:len(all):len(all)], all[:i]...)
	ring = slices.DeleteFunc(ring, func(t Target) bool { return t.Node == node })
	return ring[:min(MaxPeers, len(ring))]
}

// check is one connection.
type check struct {
	what string
	do   func(context.Context) error
}

// run performs checks at the same time.
func (o *Outcome) run(ctx context.Context, limit time.Duration, checks []check) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	errs := make([]error, len(checks))
	var wait sync.WaitGroup
	for i, c := range checks {
		wait.Go(func() { errs[i] = repeat(ctx, c.do) })
	}
	wait.Wait()
	o.Tried = len(checks)
	for i, err := range errs {
		switch {
		case err == nil:
			o.OK++
		case len(o.Errors) < maxErrors:
			o.Errors = append(o.Errors, checks[i].what+": "+err.Error())
		}
	}
}

// repeat calls do until it succeeds or the context ends. It returns the last error, but not that of a call which the end
// cut off, unless there was no other.
func repeat(ctx context.Context, do func(context.Context) error) error {
	var last error
	for {
		err := do(ctx)
		if err == nil || ended(ctx) {
			if last == nil || err == nil {
				last = err
			}
			return last
		}
		last = err
		select {
		case <-ctx.Done():
			return last
		case <-time.After(pause):
		}
	}
}

// ended reports whether a context has ended or is about to: a connection's own timer may be faster than the context's.
func ended(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// dial connects with a time limit. Its errors have no addresses: the caller's text has them.
func dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: attempt}).DialContext(ctx, "tcp", to.String())
	if op, ok := errors.AsType[*net.OpError](err); ok {
		if op.Timeout() {
			return nil, errors.New("no answer")
		}
		return nil, op.Err
	}
	return c, err
}

// connect opens a connection.
func connect(ctx context.Context, to netip.AddrPort) error {
	c, err := dial(ctx, to)
	if err == nil {
		err = c.Close()
	}
	return err
}

// apiName is a name in the certificate of every API server.
const apiName = "kubernetes.default.svc"

// handshake connects to the API server and looks for its name in the certificate: something else may accept the
// connection. Whether the certificate can be trusted does not matter, because nothing secret is sent.
func handshake(ctx context.Context, to netip.AddrPort) error {
	c, err := dial(ctx, to)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(attempt))
	t := tls.Client(c, &tls.Config{ServerName: apiName, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	if err := t.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("connected, but no TLS: %w", err)
	}
	if t.ConnectionState().PeerCertificates[0].VerifyHostname(apiName) != nil { // the error lists all names
		return fmt.Errorf("another program answers there: its certificate is not for %s", apiName)
	}
	return nil
}

// reach is like connect, but a refused connection is an answer of the host, too.
func reach(ctx context.Context, to netip.AddrPort) error {
	if err := connect(ctx, to); !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return nil
}

// greet connects to a listener and compares the node that it names.
func greet(ctx context.Context, to netip.AddrPort, node string) error {
	c, err := dial(ctx, to)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(attempt))
	raw, err := io.ReadAll(io.LimitReader(c, 1000))
	if err != nil {
		return fmt.Errorf("connected, but no answer: %w", err)
	}
	if string(raw) != greeting+node {
		return fmt.Errorf("another program answers there: %.60q", raw)
	}
	return nil
}

// resolve asks the cluster's DNS. The search list of the pod completes the name.
func resolve(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*attempt)
	defer cancel()
	_, err := (&net.Resolver{PreferGo: true}).LookupHost(ctx, name)
	e, ok := errors.AsType[*net.DNSError](err)
	switch {
	case !ok:
		return err
	case e.Server == "":
		return errors.New(e.Err)
	case e.IsTimeout:
		return fmt.Errorf("no answer from the server %s", e.Server)
	}
	return fmt.Errorf("%s (server %s)", e.Err, e.Server)
}
