// Package podnetworks is the agent's part of pods with several networks in Kubernetes. It keeps the cluster's
// NetworkAttachmentDefinitions on disk for the plugin fairlead-pod, answers the plugin, and publishes what the plugin
// attached. It keeps no pods in memory.
package podnetworks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/agent/store/kube"
	"github.com/fairlead/fairlead/cni"
)

// Options configure a Manager.
type Options struct {
	Client  rest.Interface // of the Kubernetes API, for JSON
	Dir     podstate.Dir
	Kubelet string // path of the kubelet's pod-resources socket
	Log     *slog.Logger
}

// Manager runs the agent's part of pods with several networks.
type Manager struct {
	o          Options
	published  map[podstate.Key]*publication
	stamp      string // of the pods that are all published; "": unknown
	unreadable string // what logUnreadable logged last; "": nothing since the networks could be read
}

// NewManager returns a manager. It does not connect.
func NewManager(o Options) *Manager {
	return &Manager{o: o, published: map[podstate.Key]*publication{}}
}

// Handlers returns the operations for the agent's socket.
func (m *Manager) Handlers() map[string]address.Handler {
	return map[string]address.Handler{podstate.OpDefinition: m.definition, podstate.OpDevices: m.devices}
}

// Run follows the definitions and publishes the networks of pods until the context ends.
func (m *Manager) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { m.follow(ctx) })
	all.Go(func() { m.publish(ctx) })
	all.Wait()
}

// answerWithin limits a request to the API on behalf of a plugin, which waits for the answer.
const answerWithin = 10 * time.Second

// definition answers a plugin that found no definition on disk. It writes no file, because only the follower knows the
// order of changes.
func (m *Manager) definition(ctx context.Context, raw json.RawMessage) (any, error) {
	var args podstate.DefinitionArgs
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	for _, name := range []string{args.Namespace, args.Name} {
		if err := cni.ValidateNetworkName(name); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	body, err := kube.Body(m.o.Client.Get().AbsPath(apiPath, "namespaces", args.Namespace, resource, args.Name).Do(ctx))
	if apierrors.IsNotFound(err) {
		return nil, cni.Errorf(cni.CodeInvalidNetworkConfig, "it does not exist in the Kubernetes API: create it, or correct the annotation of the pod")
	}
	if err != nil {
		return nil, cni.Errorf(cni.CodeTryAgainLater, "this node does not have it yet, and the Kubernetes API does not return it: %w", err)
	}
	var o object
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, fmt.Errorf("read the Kubernetes API's answer: %w", err)
	}
	return o.definition(), nil
}

// devices answers a plugin that needs the devices of a pod.
func (m *Manager) devices(ctx context.Context, raw json.RawMessage) (any, error) {
	var args podstate.DevicesArgs
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	ids, err := deviceIDs(ctx, m.o.Kubelet, args)
	if err != nil {
		return nil, cni.Errorf(cni.CodeTryAgainLater, "the kubelet does not answer at %s: %w", m.o.Kubelet, err)
	}
	return podstate.DevicesResult{IDs: ids}, nil
}

const longestPause = time.Minute

// pause waits for a time that grows with the number of failures. It is random, so that the agents of many nodes do not ask
// at once.
func pause(ctx context.Context, failures int) {
	longest := min(time.Second<<min(failures, 6), longestPause)
	select {
	case <-ctx.Done():
	case <-time.After(longest/2 + rand.N(longest/2)):
	}
}

// isEnd reports whether a watch ended as the API server ends watches.
func isEnd(err error) bool { return err == nil || errors.Is(err, errWatchEnded) }
