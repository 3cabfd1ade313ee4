package enforce

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/nftable"
	"github.com/fairlead/fairlead/plugins/chain"
	"github.com/fairlead/fairlead/skel"
)

// host is a node whose agent enforces policy without an API: the test takes its place.
type host struct {
	t       *testing.T
	netns   string
	dirs    local.Dir
	records *attach.Dir
	e       *Enforcer
	log     *kerneltest.Output
	stop    func()
}

func newHost(t *testing.T) *host {
	lib, run := t.TempDir(), t.TempDir()
	t.Setenv(local.LibVariable, lib) // for the plugin
	t.Setenv(local.RunVariable, run)
	return &host{t: t, netns: kerneltest.Netns(t), dirs: local.Open(lib, run), records: attach.Open(t.TempDir()), log: &kerneltest.Output{}}
}

// start starts an agent that knows the pods of a namespace, and a policy.
func (h *host) start(pods ...*policy.Endpoint) {
	h.t.Helper()
	h.run()
	h.e.update(func(c *policy.Compiler) { c.SetNamespace("shop", nil) })
	for _, p := range pods {
		h.pod(p)
	}
	h.e.update(func(c *policy.Compiler) { c.SetNetworkPolicy(isolateAll(h.t)) })
	h.synced(true)
	h.synced(false)
}

// synced notes that all policies are known, or all other objects.
func (h *host) synced(policies bool) {
	for _, k := range kinds() {
		if k.isPolicy == policies {
			h.e.synced(k.resource + fromAPI)
		}
	}
}

// run starts an agent that has not received anything from the API.
func (h *host) run() {
	h.t.Helper()
	h.e = New(Options{Config: &rest.Config{}, Node: "n1", Attachments: podstate.Open(h.dirs), Records: h.records, Log: slog.New(slog.NewTextHandler(h.log, nil))})
	l, err := address.Listen(h.dirs.Socket())
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served, ended := make(chan error, 1), make(chan error, 1)
	go func() { served <- (&address.Server{Handlers: h.e.Handlers()}).Serve(ctx, l) }()
	go func() {
		ended <- kerneltest.Inside(h.netns, func() error {
			p, err := nftable.Open()
			if err != nil {
				return err
			}
			defer p.Close()
			go func() {
				if h.e.waitNeeded(ctx) {
					h.e.readAttachments()
					h.e.synced(attachmentFiles)
				}
			}()
			h.e.loop(ctx, p)
			return nil
		})
	}()
	h.stop = func() {
		cancel()
		<-served
		if err := <-ended; err != nil {
			h.t.Error(err)
		}
		h.stop = func() {}
	}
	h.t.Cleanup(func() { h.stop() })
}

func (h *host) pod(p *policy.Endpoint) {
	h.e.update(func(c *policy.Compiler) { c.SetEndpoint(p) })
}

func pod(name, uid string, addrs ...string) *policy.Endpoint {
	e := &policy.Endpoint{Namespace: "shop", Name: name, UID: uid, Node: "n1", Labels: map[string]string{"app": name}, Created: time.Unix(1, 0)}
	for _, a := range addrs {
		e.Addresses = append(e.Addresses, netip.MustParseAddr(a))
	}
	return e
}

// call runs the plugin for a container of a pod. The container has the pod's UID as its ID. Its namespace has
// no eth0, so that the plugin does not look at one.
func (h *host) call(ctx context.Context, verb, name, uid, addr string) error {
	env := map[string]string{
		"CNI_COMMAND": verb, "CNI_CONTAINERID": uid, "CNI_IFNAME": "eth0", "CNI_NETNS": h.netns, "CNI_PATH": "/", "CNI_NETNS_OVERRIDE": "1",
		"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + name + ";K8S_POD_UID=" + uid,
	}
	conf := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "pods", "type": "fairlead-policy", "cni.dev/valid-attachments": [],
		"prevResult": {"interfaces": [{"name": "eth0", "sandbox": %q}, {"name": "veth0"}], "ips": [{"address": "%s/24", "interface": 0}, {"address": "10.0.0.254/24", "interface": 1}]}}`, h.netns, addr)
	_, err := skel.Serve(ctx, chain.Policy(), func(name string) string { return env[name] }, []byte(conf))
	return err
}

func (h *host) must(verb, name, uid, addr string) {
	h.t.Helper()
	if err := h.call(h.t.Context(), verb, name, uid, addr); err != nil {
		h.t.Errorf("%s of %s: %v", verb, name, err)
	}
}

// verdict returns what the kernel's table does with new packets to an address: "closed", the kind of another chain, or "".
func (h *host) verdict(addr string) string {
	h.t.Helper()
	out, err := exec.Command("nsenter", "--net="+h.netns, "nft", "list", "map", "inet", policy.TableName, "ingress4").CombinedOutput()
	if err != nil {
		h.t.Fatalf("%v: %s", err, out)
	}
	_, after, found := strings.Cut(string(out), addr+" : ")
	if !found {
		return ""
	}
	if strings.HasPrefix(after, "goto ingress-closed") {
		return "closed"
	}
	verdict, _, _ := strings.Cut(strings.TrimPrefix(after, "goto "), "-")
	return strings.TrimRight(strings.Fields(verdict)[0], ",")
}

func (h *host) is(addr, want string) {
	h.t.Helper()
	if got := h.verdict(addr); got != want {
		h.t.Errorf("%s: %q, want %q", addr, got, want)
	}
}

// becomes waits for a verdict that no ADD waits for.
func (h *host) becomes(addr, want string) {
	h.t.Helper()
	kerneltest.Within(h.t, 5*time.Second, func() error {
		if got := h.verdict(addr); got != want {
			return fmt.Errorf("%s: %q, want %q", addr, got, want)
		}
		return nil
	})
}

// TestAddWaits checks that ADD returns when the pod's policy is in the kernel, and not before.
func TestAddWaits(t *testing.T) {
	h := newHost(t)
	if err := h.call(t.Context(), "ADD", "web", "u1", "10.0.0.1"); err == nil || !strings.Contains(err.Error(), "the agent does not answer") {
		t.Errorf("ADD without an agent: %v", err)
	}
	h.start(pod("web", "u1"))
	h.must("ADD", "web", "u1", "10.0.0.1")
	h.is("10.0.0.1", "ingress") // the API does not have the address yet
	h.is("10.0.0.254", "")      // the host's end
	h.must("CHECK", "web", "u1", "10.0.0.1")
	if err := h.call(t.Context(), "CHECK", "web", "u1", "10.0.0.7"); err == nil {
		t.Error("CHECK accepts another address")
	}

	// A pod that the API does not have yet is closed meanwhile.
	added := make(chan error, 1)
	go func() { added <- h.call(t.Context(), "ADD", "db", "u2", "10.0.0.2") }()
	h.becomes("10.0.0.2", "closed")
	h.pod(pod("db", "u1")) // the pod that had the name before
	time.Sleep(50 * time.Millisecond)
	select {
	case err := <-added:
		t.Fatalf("ADD does not wait for the pod: %v", err)
	default:
	}
	h.is("10.0.0.2", "closed")
	h.pod(pod("db", "u2"))
	if err := <-added; err != nil {
		t.Fatal(err)
	}
	h.is("10.0.0.2", "ingress")

	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := h.call(short, "ADD", "unknown", "u3", "10.0.0.3"); err == nil {
		t.Error("ADD of a pod that does not exist succeeds")
	}
	h.becomes("10.0.0.3", "")
}

// TestFirstPolicy checks that ADD waits for no pod while there is no policy. Then the first policy applies to the pods that
// exist.
func TestFirstPolicy(t *testing.T) {
	h := newHost(t)
	h.run()
	h.synced(true)
	h.must("ADD", "web", "u1", "10.0.0.1")
	h.must("ADD", "db", "u2", "10.0.0.2")
	h.is("10.0.0.1", "")
	h.e.update(func(c *policy.Compiler) { c.SetNetworkPolicy(isolateAll(t)) })
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := h.call(short, "ADD", "late", "u3", "10.0.0.3"); err == nil {
		t.Error("ADD does not wait for the first policy")
	}
	h.is("10.0.0.1", "") // the agent has not received the pods
	h.e.update(func(c *policy.Compiler) { c.SetNamespace("shop", nil) })
	h.pod(pod("web", "u1"))
	h.synced(false)
	h.becomes("10.0.0.1", "ingress")
	h.is("10.0.0.2", "closed") // the API does not have its pod
	h.e.update(func(c *policy.Compiler) { c.DeletePolicy(policy.NetworkPolicyID("shop", isolateAll(t).Name)) })
	h.becomes("10.0.0.1", "")
	h.must("ADD", "web", "u1", "10.0.0.1")
}

// TestAddWithoutPolicy checks that ADD does not wait for the loop that writes rules if it changes none.
func TestAddWithoutPolicy(t *testing.T) {
	h := newHost(t)
	h.run()
	h.synced(true)
	h.must("ADD", "web", "u1", "10.0.0.1")
	h.stop() // from now on, nothing is written
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := h.e.attachment(short, podstate.Key{ContainerID: "u1", IfName: "eth0"}); err != nil {
		t.Error(err)
	}
}

// TestAddressesAtRestart checks that an agent knows the addresses of containers that were added before it started, and
// what was deleted while it was away.
func TestAddressesAtRestart(t *testing.T) {
	h := newHost(t)
	h.start(pod("web", "u1"), pod("db", "u2"))
	h.must("ADD", "web", "u1", "10.0.0.1")
	h.must("ADD", "db", "u2", "10.0.0.2")
	h.stop()
	h.must("DEL", "db", "u2", "10.0.0.2")
	h.is("10.0.0.2", "ingress")
	h.start(pod("web", "u1"), pod("db", "u2"))
	h.becomes("10.0.0.2", "")
	h.is("10.0.0.1", "ingress")

	// A lost message about a DEL, a file of another boot, and a damaged one.
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(h.dirs.Root(), "endpoints", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("u8:eth0.json", `{"version": 1, "containerID": "u8", "ifName": "eth0", "addresses": ["10.0.0.8"], "boot": "another"}`)
	write("u9:eth0.json", `{"version": 1,`)
	if err := os.Remove(filepath.Join(h.dirs.Root(), "endpoints", "u1:eth0.json")); err != nil {
		t.Fatal(err)
	}
	h.e.readAttachments()
	h.becomes("10.0.0.1", "")
	h.is("10.0.0.8", "")
	h.must("DEL", "x", "u9", "10.0.0.9")
	h.must("GC", "", "", "10.0.0.9")
	if list, err := podstate.Open(h.dirs).Endpoints(); err != nil || len(list) != 1 { // u8 is of another network
		t.Errorf("after DEL and GC: %v, %v", list, err)
	}
}

// TestPolicyDuringDEL checks that the policy of a container stays in force until DEL has removed its interface: DEL runs the
// plugin fairlead-policy first.
func TestPolicyDuringDEL(t *testing.T) {
	h := newHost(t)
	h.start(pod("web", "u1"), pod("db", "u2"))
	go h.e.followAttachments(t.Context())
	owner := kernel.Owner{Network: "pods", ContainerID: "u1", IfName: "eth0"}
	record := func() {
		t.Helper()
		r := h.records.New(owner.Network, owner.ContainerID, owner.IfName, "/proc/self/ns/net")
		if err := h.records.Write(r); err != nil {
			t.Fatal(err)
		}
		r.Unlock()
	}
	record()
	h.must("ADD", "web", "u1", "10.0.0.1")
	h.must("DEL", "web", "u1", "10.0.0.1")
	h.must("ADD", "db", "u2", "10.0.0.2") // it returns when the kernel has all changes
	h.is("10.0.0.1", "ingress")
	if err := h.records.Remove(owner); err != nil {
		t.Fatal(err)
	}
	h.becomes("10.0.0.1", "")

	// The record of the container's next attachment does not keep the policy of the former one.
	record()
	h.must("ADD", "web", "u1", "10.0.0.1")
	record()
	h.must("DEL", "web", "u1", "10.0.0.1")
	h.becomes("10.0.0.1", "")
}

// TestAddressReused gives an address to the next pod while the API still has it for the previous one, which is newer in the
// API's order.
func TestAddressReused(t *testing.T) {
	h := newHost(t)
	old := pod("web", "u1", "10.0.0.1")
	old.Created = time.Unix(9, 0)
	h.start(old, pod("db", "u2"))
	h.webHas("10.0.0.1", true)
	h.must("ADD", "db", "u2", "10.0.0.1")
	h.is("10.0.0.1", "ingress")
	h.webHas("10.0.0.1", false)
	h.must("DEL", "db", "u2", "10.0.0.1")
	h.webHas("10.0.0.1", true)
	h.e.update(func(c *policy.Compiler) { c.DeleteEndpoint("shop", "web") })
	h.becomes("10.0.0.1", "")
}

// TestDeletedByForce closes a container whose pod the API does not have any more.
func TestDeletedByForce(t *testing.T) {
	h := newHost(t)
	h.start(pod("web", "u1"))
	h.must("ADD", "web", "u1", "10.0.0.1")
	h.e.update(func(c *policy.Compiler) { c.DeleteEndpoint("shop", "web") })
	h.becomes("10.0.0.1", "closed")
	h.pod(pod("web", "u2", "10.0.0.5")) // the next pod of a StatefulSet
	h.becomes("10.0.0.5", "ingress")
	h.is("10.0.0.1", "closed")
	h.must("DEL", "web", "u1", "10.0.0.1")
	h.becomes("10.0.0.1", "")
}

// isolateAll returns a policy that allows traffic from pods with the label app: web only.
func isolateAll(t *testing.T) *networkingv1.NetworkPolicy {
	t.Helper()
	p := &networkingv1.NetworkPolicy{}
	p.Namespace, p.Name = "shop", "all"
	if err := yaml.UnmarshalStrict([]byte(`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

// webHas waits until an address is, or is not, one of the pods from which the policy allows traffic.
func (h *host) webHas(addr string, want bool) {
	h.t.Helper()
	kerneltest.Within(h.t, 5*time.Second, func() error {
		out, err := exec.Command("nsenter", "--net="+h.netns, "nft", "list", "sets", "inet").CombinedOutput()
		_, pods, _ := strings.Cut(string(out), "set pods-")
		pods, _, _ = strings.Cut(pods, "set self4")
		if have := strings.Contains(pods, addr); err != nil || have != want {
			return fmt.Errorf("%v: %s is in a set: %v, want %v:\n%s", err, addr, have, want, out)
		}
		return nil
	})
}
