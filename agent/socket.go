package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/cni"
)

// serveSocket serves the agent's socket on this host. If other software removes the socket, for example with its
// directory, serveSocket creates it again.
func (a *Agent) serveSocket(ctx context.Context) error {
	path := local.Open(a.o.Lib, a.o.Run).Socket()
	l, err := address.Listen(path)
	if err != nil {
		return err
	}
	s := &address.Server{Handlers: a.manager.Handlers()}
	s.Handlers[local.OpAgent] = func(context.Context, json.RawMessage) (any, error) { return a.State().truncated(), nil }
	s.Handlers[local.OpNetwork] = a.waitForNetwork
	s.Handlers[local.OpStore] = func(context.Context, json.RawMessage) (any, error) { return a.storeConfig(), nil }
	maps.Copy(s.Handlers, a.policy.Handlers())
	if a.pods != nil {
		maps.Copy(s.Handlers, a.pods.Handlers())
	}
	go func() { _ = s.Serve(ctx, l) }() // it ends when the socket is closed
	go func() {
		lost := time.NewTicker(socketPoll)
		defer lost.Stop()
		for failing := false; ; {
			select {
			case <-ctx.Done():
				return
			case <-lost.C:
			}
			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				continue
			}
			if unlock, err := lockHost(a.o.Run); err == nil { // the directory went, and the lock with it
				defer unlock()
			}
			again, err := address.Listen(path)
			if err != nil {
				if !failing {
					a.log.Error("cannot create the agent's socket again after other software removed it; plugins get no answers", "error", err)
				}
				failing = true
				continue
			}
			a.log.Warn("created the agent's socket again: other software removed it", "path", path)
			l.SetUnlinkOnClose(false) // the path is the new socket's
			l.Close()
			l, failing = again, false
			go func() { _ = s.Serve(ctx, again) }()
		}
	}()
	return nil
}

// socketPoll is the interval between checks whether the socket still has its path.
const socketPoll = time.Second

// The limits of a reply: with thousands of unreachable nodes, or errors that contain a long list, it would not fit in one
// line.
const (
	maxListed = 100 // in each list
	maxText   = 500 // bytes of each line of a text
)

// truncated returns a copy of the state with shortened lists and texts.
func (s *State) truncated() *State {
	out := *s
	for _, list := range []*[]string{&out.Reasons, &out.Unreachable, &out.Invalid, &out.Failures} {
		if more := len(*list) - maxListed; more > 0 {
			*list = append(slices.Clone((*list)[:maxListed]), fmt.Sprintf("and %d more", more))
		}
		short := make([]string, len(*list)) // not null in JSON
		for i, text := range *list {
			short[i] = shortened(text)
		}
		*list = short
	}
	out.StoreError, out.PublishError = shortened(s.StoreError), shortened(s.PublishError)
	return &out
}

// shortened returns a text whose long lines end with "...".
func shortened(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if len(l) > maxText {
			lines[i] = strings.ToValidUTF8(l[:maxText], "") + "..."
		}
	}
	return strings.Join(lines, "\n")
}

// networkPoll is the interval between checks in waitForNetwork.
const networkPoll = 20 * time.Millisecond

// waitForNetwork waits until an isolated network's namespace is set up on this host.
func (a *Agent) waitForNetwork(ctx context.Context, raw json.RawMessage) (any, error) {
	var args local.NetworkArgs
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	if err := a.isolated(args.Network); err != nil {
		return nil, err
	}
	if a.wanted.add(args.Network) {
		a.kick()
	}
	for {
		if a.status.hasNetwork(args.Network) {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			err := errors.Join(append(a.status.networkErrors(args.Network), a.status.reasons()...)...)
			if err == nil {
				err = errors.New("it takes longer than the plugin waits")
			}
			return nil, fmt.Errorf("network %s is not set up on this host yet: %w", args.Network, err)
		case <-time.After(networkPoll):
		}
	}
}

// isolated returns an error if the network is not isolated, because it then has no namespace to wait for.
func (a *Agent) isolated(network string) (err error) {
	a.storeCache.read(func(s *cluster.Snapshot) {
		if n := s.Networks[network]; n != nil && !n.Isolated {
			err = cni.Errorf(cni.CodeInvalidNetworkConfig, `the network is not isolated: attach its containers with ptp or bridge and "ipam": {"type": "fairlead-ipam", "network": %q}`, network)
		}
	})
	return err
}

// storeConfig returns the part of the configuration that commands on this host need to find the same store, whatever
// flags the agent was started with, and in which directory. It contains the names of secret files, not their contents.
func (a *Agent) storeConfig() *config.Config {
	c := a.o.Config
	out := &config.Config{Node: c.Node, Store: c.Store, Flannel: config.Flannel{Prefix: c.Flannel.Prefix}, Policy: c.Policy}
	e := &out.Store.Etcd
	for _, file := range []*string{&out.Store.File, &e.CACert, &e.Cert, &e.Key, &e.PasswordFile, &out.Store.Kubernetes.Kubeconfig} {
		if *file == "" || *file == config.InCluster {
			continue
		}
		if path, err := filepath.Abs(*file); err == nil {
			*file = path
		}
	}
	return out
}
