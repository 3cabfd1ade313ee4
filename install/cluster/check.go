package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/agent/store/kube"
	"github.com/fairlead/fairlead/install/cluster/probe"
)

// The names of a check's DaemonSets. The ConfigMap with the targets has the name of the listeners.
const (
	listenerName = "fairlead-check"
	clientName   = "fairlead-check-client"
)

// CheckPort is the TCP port of the listening pods.
const CheckPort = 9480

// TargetsFile is the path of the targets in the pods of a check.
const TargetsFile = "/etc/fairlead-check/" + targetsKey

const targetsKey = "targets.json.gz"

// Check is the result of a check from inside every node.
type Check struct {
	OK    bool        `json:"ok"`
	Nodes []CheckNode `json:"nodes"`
	Notes []string    `json:"notes,omitempty"`
}

// CheckNode lists the targets that a pod on one node reached, and did not reach.
type CheckNode struct {
	probe.Result
	Error string `json:"error,omitempty"` // why there is no result
}

// OK reports whether the pod reached everything.
func (n *CheckNode) OK() bool {
	for _, o := range []probe.Outcome{n.Pods, n.Hosts, n.Service, n.DNS} {
		if o.OK < o.Tried {
			return false
		}
	}
	return n.Error == ""
}

// CheckOptions configure a check.
type CheckOptions struct {
	Namespace string
	Timeout   time.Duration // of each of the two steps: start the pods, read their results
	Seconds   int           // for which a pod repeats a connection that fails
	Progress  func(string)
}

// Check starts pods of the pod network on every node that has an agent, and has them connect to each other, to all
// nodes, to the API server's Service and to the cluster's DNS. It removes the pods afterwards, also if the context ends.
func (c *Client) Check(ctx context.Context, o CheckOptions) (out *Check, err error) {
	s, err := c.observe(ctx, o.Namespace)
	if errors.Is(err, os.ErrNotExist) {
		return nil, c.notInstalled(ctx, o.Namespace)
	}
	if err != nil {
		return nil, err
	}
	if err := c.removeCheck(ctx, o.Namespace); err != nil { // of an earlier command that was killed
		return nil, err
	}
	defer func() {
		failed := c.removeCheck(context.WithoutCancel(ctx), o.Namespace)
		if err != nil || failed == nil {
			err = errors.Join(err, failed)
			return
		}
		out.Notes = append(out.Notes, "the pods of this check remain: "+failed.Error()) // the results count nevertheless
	}()
	if err := c.create(ctx, "DaemonSet", o.Namespace, listeners(&s.set)); err != nil {
		return nil, err
	}
	out = &Check{OK: true}
	found, err := c.waitForListeners(ctx, &s, o, out)
	if err != nil {
		return nil, err
	}
	t, err := c.targets(ctx, &s, found, o)
	if err != nil {
		return nil, err
	}
	return out, c.runClients(ctx, &s, t, o, out)
}

// removeCheck removes the objects of a check, and waits until the pods are gone.
func (c *Client) removeCheck(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	_, err := c.remove(ctx, pathOf("ConfigMap", namespace)+"/"+listenerName)
	errs := []error{err}
	for _, name := range []string{clientName, listenerName} { // both, before the wait for the pods of one
		_, err := c.remove(ctx, pathOf("DaemonSet", namespace)+"/"+name)
		errs = append(errs, err)
	}
	for _, name := range []string{clientName, listenerName} {
		_, err := c.removeDaemonSet(ctx, namespace, name)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// listeners returns the DaemonSet of the listening pods.
func listeners(agents *appsv1.DaemonSet) *appsv1.DaemonSet {
	set := shortLived(listenerName, agents, "kubernetes", "probe", fmt.Sprintf("--listen=:%d", CheckPort))
	unprivileged(&set.Spec.Template.Spec)
	return set
}

// clients returns the DaemonSet of the connecting pods.
func clients(agents *appsv1.DaemonSet) *appsv1.DaemonSet {
	set := shortLived(clientName, agents, "kubernetes", "probe", "--targets="+TargetsFile)
	pod := &set.Spec.Template.Spec
	unprivileged(pod)
	pod.Volumes = []corev1.Volume{{Name: "targets", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: listenerName}}}}}
	pod.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "targets", MountPath: "/etc/fairlead-check", ReadOnly: true}}
	return set
}

// nobody is the user of pods that need no permissions.
const nobody = 65534

// unprivileged takes all permissions from a pod.
func unprivileged(pod *corev1.PodSpec) {
	yes, no, user := true, false, int64(nobody)
	pod.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	pod.Containers[0].SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// waitForListeners waits until every node with an agent has a listening pod with an address, and until the cluster's DNS
// has an endpoint. After the time-out it goes on with what there is.
func (c *Client) waitForListeners(ctx context.Context, s *observation, o CheckOptions, out *Check) (found map[string]*corev1.Pod, err error) {
	limited, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	dns := true
	err = until(limited, func() (bool, error) {
		now, err := c.podsOf(limited, o.Namespace, listenerName)
		if err != nil {
			return false, err // perhaps the time is over: the pods of the last call stay
		}
		found = now
		if now, err := c.dnsReady(limited); err == nil {
			dns = now
		} else {
			return false, err
		}
		started := 0
		for _, p := range found {
			if p.Status.Phase == corev1.PodRunning && len(p.Status.PodIPs) > 0 {
				started++
			}
		}
		o.Progress(fmt.Sprintf("%s: pods run on %d of %d nodes", listenerName, started, len(s.agents())))
		return dns && started >= len(s.agents()), nil
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = nil
	}
	if !dns {
		out.Notes = append(out.Notes, "no pod behind the Service kube-system/kube-dns is ready: kubectl -n kube-system get pods -l k8s-app=kube-dns")
	}
	return found, err
}

// agents returns the names of the nodes with an agent.
func (s *observation) agents() (names []string) {
	for _, n := range s.nodes {
		if n.pod != nil && n.node != nil {
			names = append(names, n.name)
		}
	}
	return names
}

// dnsReady reports whether the cluster's DNS has an endpoint. A cluster without the Service kube-dns needs none.
func (c *Client) dnsReady(ctx context.Context) (bool, error) {
	has, err := c.hasDNS(ctx)
	if err != nil || !has {
		return err == nil, err
	}
	type slice struct {
		Endpoints []struct{ Conditions struct{ Ready *bool } }
	}
	all, err := list[slice](ctx, c, "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices", "kubernetes.io/service-name=kube-dns")
	for _, s := range all {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				return true, nil
			}
		}
	}
	return false, err
}

func (c *Client) hasDNS(ctx context.Context) (bool, error) {
	err := c.get(ctx, &struct{}{}, "/api/v1/namespaces/kube-system/services/kube-dns")
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// kubeletPort is the usual port of the kubelet.
const kubeletPort = 10250

// targets returns what the pods connect to.
func (c *Client) targets(ctx context.Context, s *observation, found map[string]*corev1.Pod, o CheckOptions) (t probe.Targets, err error) {
	t.Seconds = o.Seconds
	families := map[bool]bool{} // of the pods: whether IPv6
	for _, p := range found {
		for _, ip := range p.Status.PodIPs {
			families[strings.Contains(ip.IP, ":")] = true
		}
	}
	for _, n := range s.nodes {
		if n.pod == nil || n.node == nil {
			continue
		}
		if p := found[n.name]; p != nil {
			var ips []string
			for _, ip := range p.Status.PodIPs {
				ips = append(ips, ip.IP)
			}
			t.Pods = append(t.Pods, target(n.name, ips, CheckPort))
		}
		port := n.node.Status.DaemonEndpoints.KubeletEndpoint.Port
		if port == 0 {
			port = kubeletPort
		}
		t.Hosts = append(t.Hosts, target(n.name, hostAddresses(n.node, families), uint16(port)))
	}
	var api corev1.Service
	if err := c.get(ctx, &api, "/api/v1/namespaces/default/services/kubernetes"); err != nil {
		return t, err
	}
	if len(api.Spec.Ports) > 0 {
		t.Services = target("", api.Spec.ClusterIPs, uint16(api.Spec.Ports[0].Port)).Addresses
	}
	has, err := c.hasDNS(ctx)
	if has {
		t.DNS = "kubernetes.default.svc"
	}
	return t, err
}

// hostAddresses returns a node's addresses of the families that pods have: pods of one family cannot reach the other.
func hostAddresses(n *corev1.Node, families map[bool]bool) (out []string) {
	for _, a := range kube.NodeAddresses(n) {
		if families[a.Is6()] {
			out = append(out, a.String())
		}
	}
	return out
}

func target(node string, ips []string, port uint16) probe.Target {
	t := probe.Target{Node: node}
	for _, text := range ips {
		if ip, err := netip.ParseAddr(text); err == nil {
			t.Addresses = append(t.Addresses, netip.AddrPortFrom(ip, port))
		}
	}
	return t
}

// runClients starts the connecting pods and reads their results.
func (c *Client) runClients(ctx context.Context, s *observation, t probe.Targets, o CheckOptions, out *Check) error {
	raw, err := t.Encode()
	if err != nil {
		return err
	}
	m := corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: listenerName, Namespace: o.Namespace}, BinaryData: map[string][]byte{targetsKey: raw}}
	if err := c.create(ctx, "ConfigMap", o.Namespace, &m); err != nil {
		return err
	}
	if err := c.create(ctx, "DaemonSet", o.Namespace, clients(&s.set)); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, o.Timeout+time.Duration(o.Seconds)*time.Second)
	defer cancel()
	have, missing, err := results[probe.Result](limited, c, o.Namespace, clientName, s.agents(), o.Progress)
	if err := cmp.Or(err, ctx.Err()); err != nil {
		return err
	}
	for _, name := range s.agents() {
		n := CheckNode{Result: have[name], Error: missing[name]}
		n.Node = name
		if n.Error == "" && !slices.ContainsFunc(t.Pods, func(x probe.Target) bool { return x.Node == name && len(x.Addresses) > 0 }) {
			n.Error = fmt.Sprintf("no node could connect to it: its pod of the DaemonSet %s got no address in time", listenerName)
		}
		out.OK = out.OK && n.OK()
		out.Nodes = append(out.Nodes, n)
	}
	out.OK = out.OK && len(out.Nodes) > 0
	return nil
}
