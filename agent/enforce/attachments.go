package enforce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/bootid"
	"github.com/fairlead/fairlead/kernel"
)

// Handlers returns the operation of the agent's socket by which an ADD waits for policy. e is nil if the agent enforces
// no policy: then no ADD waits.
func (e *Enforcer) Handlers() map[string]address.Handler {
	return map[string]address.Handler{podstate.OpPolicy: func(ctx context.Context, raw json.RawMessage) (any, error) {
		if e == nil {
			return nil, nil
		}
		var k podstate.Key
		if err := json.Unmarshal(raw, &k); err != nil {
			return nil, err
		}
		return nil, e.attachment(ctx, k)
	}}
}

// attachment claims the addresses of an attachment for its pod, and waits until policy is in force for it. It releases
// the addresses of an attachment that has gone.
func (e *Enforcer) attachment(ctx context.Context, k podstate.Key) error {
	in, err := e.readAttachment(k)
	if err != nil || in == nil {
		return err
	}
	in.checkNamespace()
	return in.wait(ctx, claimID(k))
}

// attachmentFiles is part of what an ADD waits for.
const attachmentFiles = "attachments of this node"

// claimID returns the ID of an attachment's claim. keyOf is the inverse.
func claimID(k podstate.Key) string { return k.ContainerID + "/" + k.IfName }

func keyOf(claim string) podstate.Key {
	container, ifName, _ := strings.Cut(claim, "/")
	return podstate.Key{ContainerID: container, IfName: ifName}
}

// readAttachment updates the claim of an attachment from its file. It returns the Enforcer that has the claim, or nil.
func (e *Enforcer) readAttachment(k podstate.Key) (in *Enforcer, err error) {
	e.reading.Lock()
	defer e.reading.Unlock()
	a, err := e.o.Attachments.Endpoint(k)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	boot, bootErr := bootid.Read()
	if bootErr != nil {
		return nil, bootErr
	}
	known := err == nil && a.Boot == boot // the network namespaces of another boot have gone
	if known && e.o.Config != nil && a.Name == "" {
		known = false // no pod of Kubernetes has a policy for it
	}
	if errors.Is(err, fs.ErrNotExist) && e.isEnding(k) {
		return nil, nil
	}
	if known {
		in = e.ofNetwork(a.Isolated)
	}
	e.noteDirect(a, k, known)
	if !known {
		a = nil
	}
	var changes []func(*policy.Compiler)
	e.update(func(c *policy.Compiler) {
		if !e.active {
			return // followAttachments reads it when there is a policy
		}
		if c == e.compiler && e.o.Config == nil { // the first one
			changes = e.containers.set(claimID(k), a, e.o.Node)
		}
		if known {
			e.claimed[k] = a
			delete(e.ending, k)
		}
		if known && a.Isolated == c.Network() {
			of := asEndpoint(a, e.o.Node)
			c.SetClaim(claimID(k), &policy.Claim{
				Namespace: of.Namespace, Name: of.Name, UID: of.UID,
				Addresses: a.Addresses, Bridged: a.Bridged, Direct: a.Direct != "", Since: a.Uptime,
			})
		} else {
			c.DeleteClaim(claimID(k))
		}
		for _, change := range changes {
			change(c)
		}
	})
	if !known {
		e.removeNetworks()
	}
	return in, nil
}

// isEnding reports whether a DEL of an attachment has removed its file and not yet its record: the interface may exist. Its
// claim stays until the record is gone. The caller holds reading.
func (e *Enforcer) isEnding(k podstate.Key) bool {
	if a := e.claimed[k]; a != nil && e.o.Records != nil {
		r, err := e.o.Records.Read(kernel.Owner{Network: a.Network, ContainerID: k.ContainerID, IfName: k.IfName})
		if err == nil && r.Since <= a.Uptime || err != nil && !errors.Is(err, fs.ErrNotExist) {
			e.ending[k] = true
			return true
		}
	}
	delete(e.ending, k)
	delete(e.claimed, k)
	return false
}

// readEnding updates the claims of attachments that were ending.
func (e *Enforcer) readEnding() {
	e.reading.Lock()
	list := slices.Collect(maps.Keys(e.ending))
	e.reading.Unlock()
	for _, k := range list {
		_, _ = e.readAttachment(k) // it fails for a new file only, which the next look reads
	}
}

// containers are the attachments of this host's containers, by claim.
type containers map[string]*podstate.Endpoint

// set replaces an attachment, or removes it if now is nil. It returns the changes for each network's compiler. An
// endpoint has its addresses in all isolated networks, where it may be a peer's; those in the host's networks are
// claims only.
func (all containers) set(claim string, now *podstate.Endpoint, node string) (changes []func(*policy.Compiler)) {
	old := all[claim]
	if reflect.DeepEqual(old, now) {
		return nil
	}
	if all[claim] = now; now == nil {
		delete(all, claim)
	}
	for _, a := range []*podstate.Endpoint{old, now} {
		if a == nil {
			continue
		}
		e := asEndpoint(a, node)
		if exists := all.addAttachments(e); !exists {
			changes = append(changes, func(c *policy.Compiler) { c.DeleteEndpoint(e.Namespace, e.Name) })
			continue
		}
		changes = append(changes, func(c *policy.Compiler) {
			c.AddNamespace(e.Namespace)
			c.SetEndpoint(e)
		})
	}
	return changes
}

// addAttachments adds an endpoint's labels, and its addresses in isolated networks. It reports whether the endpoint has
// any attachment. The newest container counts, with the labels of all its attachments: an attachment of an earlier
// container with the name may remain.
func (all containers) addAttachments(e *policy.Endpoint) (exists bool) {
	var list []*podstate.Endpoint
	var newest *podstate.Endpoint
	for _, claim := range slices.Sorted(maps.Keys(all)) {
		a := all[claim]
		if of := asEndpoint(a, e.Node); of.Namespace != e.Namespace || of.Name != e.Name {
			continue
		}
		if list = append(list, a); newest == nil || a.Uptime >= newest.Uptime {
			newest = a
		}
		if a.Isolated != "" {
			if e.Isolated == nil {
				e.Isolated = map[string][]netip.Addr{}
			}
			e.Isolated[a.Isolated] = append(e.Isolated[a.Isolated], a.Addresses...)
		}
	}
	if newest == nil {
		return false
	}
	e.UID, e.Labels, e.Created = newest.UID, map[string]string{}, time.Unix(0, 0).Add(newest.Uptime)
	for _, a := range list { // in the order of interfaces, as on other hosts
		if a.ContainerID == newest.ContainerID {
			maps.Copy(e.Labels, a.Labels)
		}
	}
	return true
}

// noteDirect notes an attachment to which policy does not apply: the host does not forward its packets, or does not know its
// addresses.
func (e *Enforcer) noteDirect(a *podstate.Endpoint, k podstate.Key, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !known || a.Direct == "" {
		delete(e.direct, k)
		return
	}
	if !e.direct[k] {
		e.o.Log.Warn("network policy does not apply to an interface: this host does not forward its packets, or it has no addresses",
			"namespace", a.Namespace, "pod", a.Name, "container", k.ContainerID, "interface", k.IfName, "plugin", a.Direct)
	}
	e.direct[k] = true
}

// readAttachments updates all claims from the files. It finds attachments whose DEL could not reach this agent. With an
// error, listed says whether it knows which attachments there are.
func (e *Enforcer) readAttachments() (listed bool, err error) {
	keys, err := e.o.Attachments.Endpoints()
	if err != nil {
		return false, err
	}
	for _, id := range e.claims() {
		if k := keyOf(id); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	var errs []error
	for _, k := range keys {
		if _, err := e.readAttachment(k); err != nil {
			errs = append(errs, fmt.Errorf("container %s, interface %s: %w", k.ContainerID, k.IfName, err))
		}
	}
	return true, errors.Join(errs...)
}

// attachmentReader reads the attachments' files again until it can read all of them: a host may lack memory or file
// descriptors for a moment.
type attachmentReader struct {
	*Enforcer
	failed string // what was logged
}

// read reads the files, and reports whether the attachments are known, and all of them are read.
func (r *attachmentReader) read() (listed, complete bool) {
	listed, err := r.readAttachments()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != r.failed && text != "" {
		r.o.Log.Error("network policy cannot read attachments of this node; the agent tries again", "error", err)
	}
	r.failed = text
	r.setUnread(text)
	return listed, err == nil
}

// lookEvery is the interval between looks at the attachments' files, for changes of which no plugin could tell the
// agent.
const lookEvery = time.Second

// unreadFor limits how long a starting agent tries to read an attachment's file, for example while the host lacks memory.
// Meanwhile, the rules of the agent before it stay. After that time, the new rules lack the attachment.
const unreadFor = 30 * time.Second

// followAttachments reads the attachments' files when there is a policy, and whenever they change, until the context
// ends.
func (e *Enforcer) followAttachments(ctx context.Context) {
	if !e.waitNeeded(ctx) {
		return
	}
	r := &attachmentReader{Enforcer: e}
	known, last, began := false, "", time.Now()
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		e.readHost()
		stamp, changed := e.o.Attachments.EndpointStamp()
		if stamp != last || !known {
			listed, complete := r.read()
			if listed && !known && (complete || time.Since(began) > unreadFor) {
				known = true
				e.synced(attachmentFiles)
			}
			if last = stamp; !complete {
				last = ""
			}
		} else {
			e.readEnding()
		}
		if time.Since(changed) < lookEvery { // more changes may get the same time
			last = ""
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// wait waits until the kernel has the policy of a claim's pod.
func (e *Enforcer) wait(ctx context.Context, claim string) error {
	e.mu.Lock()
	if e.missingFor(claim) == "" {
		e.mu.Unlock()
		return nil
	}
	ready := make(chan struct{})
	e.waiting[ready] = claim
	e.mu.Unlock()
	wake(e.hurry)
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.waiting, ready)
	if missing := e.missingFor(claim); missing != "" {
		return cni.Errorf(cni.CodeTryAgainLater, "network policy is not in force yet: this node waits for %s", missing)
	}
	return nil
}

// missingFor returns what must happen before policy is in force for a claim's pod, or "".
func (e *Enforcer) missingFor(id string) string {
	for resource := range e.missing {
		return "the " + resource
	}
	if waiting := e.compiler.Waiting(id); e.active && waiting != "" {
		return waiting
	}
	if !e.inForce || e.unwritten {
		return "the kernel"
	}
	return ""
}
