package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/contrib/kubernetes"
	"github.com/fairlead/fairlead/install/cluster"
	"github.com/fairlead/fairlead/install/cluster/node"
	"github.com/fairlead/fairlead/internal/kubetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

const namespace = kubernetes.DefaultNamespace

// TestCluster installs, checks, upgrades and uninstalls against a real API server with the real controllers.
func TestCluster(t *testing.T) {
	kerneltest.OptIn(t, "FAIRLEAD_KUBERNETES")
	server := kubetest.Start(t)
	c := client(t, server)
	t.Run("ranges", func(t *testing.T) { testRanges(t, server, c) })
	t.Run("others", func(t *testing.T) { testOthers(t, server, c) })
	t.Run("forbidden", func(t *testing.T) { testForbidden(t, server) })
	server.Controllers("daemonset-controller", "garbage-collector-controller", "namespace-controller", "serviceaccount-controller")
	k := startKubelets(t, server, 3)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *kubelets, *cluster.Client)
	}{
		{"dry run", testDryRun}, {"time-out", testTimeout}, {"install", testInstall}, {"upgrade", testUpgrade}, {"status", testStatus},
		{"check", testCheck}, {"check ends early", testCheckEndsEarly}, {"check with a dead node", testCheckDeadNode},
		{"uninstall", testUninstall}, {"uninstall with a dead node", testUninstallDeadNode}, {"purge", testPurge},
		{"flannel refused", testFlannelRefused}, {"switch", testSwitch}, {"switch completed", testSwitchCompleted},
	} {
		if !t.Run(test.name, func(t *testing.T) { test.run(t, k, c) }) {
			t.FailNow() // each test begins where the one before ended
		}
	}
}

func client(t *testing.T, server *kubetest.Server) *cluster.Client {
	t.Helper()
	c, err := cluster.New(server.Config, "the test")
	if err != nil {
		t.Fatal(err)
	}
	if v, err := c.Version(t.Context()); err != nil || v != "v"+kubetest.Version {
		t.Fatalf("version %q, %v", v, err)
	}
	return c
}

func options(set ...string) cluster.Options {
	o := cluster.Options{Manifest: kubernetes.Options{Namespace: namespace, Version: "9.9.9", Values: kubernetes.Values{}}}
	for _, text := range set {
		v, err := kubernetes.Set(text)
		if err != nil {
			panic(err)
		}
		o.Manifest.Values.Merge(v)
	}
	return o
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// testRanges finds the pod ranges of clusters of different kinds.
func testRanges(t *testing.T, server *kubetest.Server, c *cluster.Client) {
	usual := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	want := func(text, problem string, named ...netip.Prefix) {
		t.Helper()
		r, err := c.FindRanges(t.Context(), named, usual)
		if got := fmt.Sprint(r.CIDRs, " ", r.Assign, " ", r.From); problem == "" && (err != nil || got != text) || problem != "" && (err == nil || !strings.Contains(err.Error(), problem)) {
			t.Errorf("%s, %v; want %s, %q", got, err, text, problem)
		}
	}
	want("[10.244.0.0/16] block the default, because the Nodes have no podCIDRs", "")
	server.Node("r1", []string{"192.0.2.1"}, "10.244.3.0/24")
	want("[10.244.0.0/16] podCIDR the podCIDRs of the Nodes", "")
	server.Node("r2", []string{"192.0.2.2"}, "10.7.0.0/24")
	want("", "the podCIDR 10.7.0.0/24 of node r2 is not in 10.244.0.0/16\nName the range with --pod-cidr")
	want("[10.0.0.0/8] podCIDR --pod-cidr", "", netip.MustParsePrefix("10.0.0.0/8"))
	want("", "--pod-cidr has the pod ranges 10.7.0.0/16, but the podCIDR 10.244.3.0/24 of node r1 is outside", netip.MustParsePrefix("10.7.0.0/16"))

	want("", "--pod-cidr has the pod ranges 10.0.0.0/8, fd00:10::/56, but node r1 has only the podCIDRs 10.244.3.0/24", netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00:10::/56"))

	manager := `{apiVersion: v1, kind: Pod, metadata: {name: manager, namespace: kube-system, labels: {component: kube-controller-manager}},
		spec: {containers: [{name: m, image: x, command: [kube-controller-manager, --allocate-node-cidrs=true, --cluster-cidr, "10.244.0.0/16,10.0.0.0/9"]}]}}`
	must(t, server.Create("/api/v1/namespaces/kube-system/serviceaccounts", `{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}`))
	must(t, server.Create("/api/v1/namespaces/kube-system/pods", manager))
	want("[10.244.0.0/16 10.0.0.0/9] podCIDR the arguments of pod manager", "")

	kubeadm := func(text string) string {
		return fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubeadm-config", "namespace": "kube-system"}, "data": {"ClusterConfiguration": %q}}`, text)
	}
	const configMaps = "/api/v1/namespaces/kube-system/configmaps"
	must(t, server.Create(configMaps, kubeadm("kind: ClusterConfiguration\nnetworking:\n  podSubnet: 10.0.0.0/9,10.128.0.0/10\n  serviceSubnet: 10.96.0.0/12\n")))
	want("", "the ConfigMap kube-system/kubeadm-config has the pod ranges 10.0.0.0/9, 10.128.0.0/10, but the podCIDR 10.244.3.0/24 of node r1")
	server.Delete("/api/v1/nodes/r1")
	want("[10.0.0.0/9 10.128.0.0/10] podCIDR the ConfigMap kube-system/kubeadm-config", "")
	server.Delete(configMaps, "kubeadm-config")
	must(t, server.Create(configMaps, kubeadm("networking: {podSubnet: 10.0.0.0}")))
	want("", "Name the pod range with --pod-cidr")

	for text, want := range map[string]string{
		"10.96.0.0/12": "overlaps with the range of the Services, 10.96.0.0/16", "192.0.2.0/24": "the address 192.0.2.2 of node r2 is in the pod range", "10.1.0.0/16": "",
	} {
		err := c.CheckFree(t.Context(), []netip.Prefix{netip.MustParsePrefix(text)})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	server.Delete("/api/v1/nodes/r2")
	server.Delete(configMaps, "kubeadm-config")
	server.Delete("/api/v1/namespaces/kube-system/pods/manager")
}

const daemonSet = `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: %s}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: x, image: x}]}}}}`

// testOthers stops at another pod network.
func testOthers(t *testing.T, server *kubetest.Server, c *cluster.Client) {
	must(t, server.Create("/apis/apps/v1/namespaces/default/daemonsets", fmt.Sprintf(daemonSet, "kube-flannel-ds-amd64")))
	must(t, server.Create("/apis/apps/v1/namespaces/kube-system/daemonsets", fmt.Sprintf(daemonSet, "kube-proxy")))
	_, err := c.Plan(t.Context(), options())
	if err == nil || !strings.Contains(err.Error(), "another pod network: flannel (DaemonSet default/kube-flannel-ds-amd64)\nTo switch from it node by node, without an interruption, type: fairlead kubernetes install --from flannel\nRemove it first, or use --force") {
		t.Errorf("%v", err)
	}
	o := options()
	o.Force = true
	if p, err := c.Plan(t.Context(), o); err != nil || len(p.Others) != 1 {
		t.Errorf("with --force: %+v, %v", p, err)
	}
	server.Delete("/apis/apps/v1/namespaces/default/daemonsets/kube-flannel-ds-amd64")
	server.Delete("/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy")
}

// testForbidden connects with wrong credentials, with too few permissions, and to no server.
func testForbidden(t *testing.T, server *kubetest.Server) {
	plan := func(change func(c *kubetest.Server)) error {
		s := *server
		config := *server.Config
		s.Config = &config
		change(&s)
		c, err := cluster.New(s.Config, "the file")
		must(t, err)
		_, err = c.Plan(t.Context(), options())
		return err
	}
	for what, x := range map[string]struct {
		change func(*kubetest.Server)
		want   string
	}{
		"token":  {func(s *kubetest.Server) { s.Config.BearerToken = "wrong" }, "does not accept the credentials in the file"},
		"user":   {func(s *kubetest.Server) { s.Config.Impersonate.UserName = "jane" }, "Use the kubeconfig of an administrator"},
		"server": {func(s *kubetest.Server) { s.Config.Host = "https://127.0.0.1:1" }, "the API server https://127.0.0.1:1 does not answer"},
	} {
		if err := plan(x.change); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", what, err, x.want)
		}
	}
	must(t, server.Create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: jane},
		roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}, subjects: [{kind: User, name: jane, apiGroup: rbac.authorization.k8s.io}]}`))
	must(t, server.Create("/apis/rbac.authorization.k8s.io/v1/clusterroles", `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: reader},
		rules: [{apiGroups: ["*"], resources: ["*"], verbs: [get, list]}, {apiGroups: [""], resources: [configmaps], verbs: [create, patch]}]}`))
	kerneltest.Within(t, 10*time.Second, func() error {
		err := plan(func(s *kubetest.Server) { s.Config.Impersonate.UserName = "jane" })
		if err == nil || !strings.Contains(err.Error(), "may not create: namespaces, customresourcedefinitions") || strings.Contains(err.Error(), "configmaps") {
			return fmt.Errorf("a user who may only read: %v", err)
		}
		return nil
	})
}

// install plans and applies, and returns the changes.
func install(t *testing.T, c *cluster.Client, o cluster.Options, dry bool) (changes []string) {
	t.Helper()
	p, err := c.Plan(t.Context(), o)
	must(t, err)
	must(t, c.Apply(t.Context(), p.Objects, dry, func(x cluster.Change) {
		if x.Action != cluster.Unchanged {
			changes = append(changes, strings.Join(append([]string{x.Action, x.Kind, x.Name}, x.Fields...), " "))
		}
	}))
	return changes
}

func testDryRun(t *testing.T, _ *kubelets, c *cluster.Client) {
	changes := install(t, c, options(), true)
	if len(changes) != 16 || changes[0] != "created Namespace fairlead-system" || changes[15] != "created DaemonSet fairlead" {
		t.Errorf("%d: %q", len(changes), changes)
	}
	if _, err := c.Status(t.Context(), namespace); err == nil || !strings.Contains(err.Error(), "fairlead kubernetes install") {
		t.Errorf("after a dry run: %v", err)
	}
}

// testTimeout installs while the pods of one node do not start, and reads the reasons.
func testTimeout(t *testing.T, k *kubelets, c *cluster.Client) {
	k.mu.Lock()
	k.broken["n2"] = "no default route"
	k.mu.Unlock()
	if changes := install(t, c, options(), false); len(changes) != 16 {
		t.Errorf("%q", changes)
	}
	states := map[string][]string{}
	err := c.Wait(t.Context(), namespace, 5*time.Second, func(p cluster.Progress) { states[p.Node] = append(states[p.Node], p.State) })
	e, is := errors.AsType[*cluster.TimeoutError](err)
	if !is || len(e.Problems) != 1 {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{
		"node n2: agent: CrashLoopBackOff", "node n2: container agent: no default route", "has restarted 2 times", "node n2: not Ready: cni plugin not initialized",
		"    level=ERROR msg=\"no default route\"",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
	if !slices.Contains(states["n1"], "ready") || slices.Contains(states["n2"], "ready") {
		t.Errorf("%v", states)
	}
	s, err := c.Status(t.Context(), namespace)
	if err != nil || s.Ready || len(s.Nodes) != 3 || s.Nodes[1].State != "agent: CrashLoopBackOff" {
		t.Errorf("%+v, %v", s, err)
	}
}

// testInstall goes on once the reason is gone.
func testInstall(t *testing.T, k *kubelets, c *cluster.Client) {
	k.mu.Lock()
	delete(k.broken, "n2")
	k.mu.Unlock()
	p, err := c.Plan(t.Context(), options())
	if err != nil || !p.Upgrade || fmt.Sprint(p.Ranges.CIDRs) != "[10.244.0.0/16]" || p.Ranges.Assign != "podCIDR" {
		t.Fatalf("%+v, %v", p, err)
	}
	if changes := install(t, c, options(), false); len(changes) > 0 {
		t.Errorf("the second install changes %q", changes)
	}
	must(t, c.Wait(t.Context(), namespace, kerneltest.Slow(time.Minute), func(cluster.Progress) {}))
}

// testUpgrade changes the image and a value, and keeps the network as it was changed meanwhile.
func testUpgrade(t *testing.T, k *kubelets, c *cluster.Client) {
	must(t, k.server.Create("/apis/fairlead.io/v1alpha1/networks", `{apiVersion: fairlead.io/v1alpha1, kind: Network, metadata: {name: default},
		spec: {subnets: [{cidr: 10.244.0.0/16, assign: podCIDR}], backends: [{type: host-gw, when: direct}, {type: vxlan}], nat: true}}`))
	if changes := install(t, c, options(), false); len(changes) > 0 {
		t.Errorf("the network that the agent created leads to the changes %q", changes)
	}
	k.patch("/apis/fairlead.io/v1alpha1/networks/default", `{"spec": {"mtu": 1400}}`)
	o := options("agent.logLevel=debug", "network.nat=false")
	o.Manifest.Version = "9.9.10"
	if p, err := c.Plan(t.Context(), o); err != nil || len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "The network default exists") {
		t.Errorf("%+v, %v", p, err)
	}
	text := strings.Join(install(t, c, o, true), "\n")
	if again := strings.Join(install(t, c, o, false), "\n"); again != text {
		t.Errorf("with --dry-run:\n%s\nwithout:\n%s", text, again)
	}
	for _, want := range []string{"data.agent.yaml: +   mtu: 1400", "containers.agent.args[2]: \"--log-level=info\" -> \"--log-level=debug\"", `containers.agent.image: "docker.io/fairlead/fairlead:9.9.9" -> "docker.io/fairlead/fairlead:9.9.10"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "nat") {
		t.Errorf("the upgrade changes the network:\n%s", text)
	}
	must(t, c.Wait(t.Context(), namespace, kerneltest.Slow(time.Minute), func(cluster.Progress) {}))
	s, err := c.Status(t.Context(), namespace)
	if err != nil || !s.Ready || !strings.HasSuffix(s.Image, ":9.9.10") {
		t.Errorf("%+v, %v", s, err)
	}

	// A rollback before all nodes have the new version: the others keep their pods, which are of the first revision.
	k.mu.Lock()
	k.broken["n1"], k.broken["n2"], k.broken["n3"] = "bad", "bad", "bad"
	k.mu.Unlock()
	bad := o
	bad.Manifest.Version = "9.9.11"
	install(t, c, bad, false)
	if err := c.Wait(t.Context(), namespace, 3*time.Second, func(cluster.Progress) {}); err == nil || strings.Count(err.Error(), "waits for its new agent") != 2 {
		t.Errorf("%v", err)
	}
	k.mu.Lock()
	clear(k.broken)
	k.mu.Unlock()
	install(t, c, o, false)
	must(t, c.Wait(t.Context(), namespace, kerneltest.Slow(time.Minute), func(cluster.Progress) {}))
}

func testStatus(t *testing.T, k *kubelets, c *cluster.Client) {
	must(t, k.server.Create("/apis/fairlead.io/v1alpha1/ipblocks", `{apiVersion: fairlead.io/v1alpha1, kind: IPBlock, metadata: {name: default.10.244.9.0-26},
		spec: {network: default, cidr: 10.244.9.0/26, subnet: 10.244.0.0/16, node: n1}}`))
	k.patch("/api/v1/nodes/n1", `{"metadata": {"annotations": {"fairlead.io/node": "{\"name\": \"n1\", \"version\": \"1.2.3\"}"}}}`)
	k.patch("/api/v1/nodes/n3", `{"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "NetworkUnavailable", "status": "True", "reason": "FairleadNotReady", "message": "no route"}]}}`)
	s, err := c.Status(t.Context(), namespace)
	must(t, err)
	n := s.Nodes[0]
	if n.Version != "1.2.3" || fmt.Sprintf("%v %v %v %s %v", n.PodCIDRs, n.Blocks, n.Addresses, n.State, n.Ready) != "[10.244.0.0/24] [10.244.9.0/26] [127.0.0.1] ready true" {
		t.Errorf("%+v", n)
	}
	if s.Nodes[2].NetworkUnavailable != "True" || fmt.Sprint(s.Subnets) != "[10.244.0.0/16 podCIDR]" {
		t.Errorf("%+v", s)
	}
	elsewhere := options()
	elsewhere.Manifest.Namespace = "elsewhere"
	for what, do := range map[string]func() error{
		"status":  func() error { _, err := c.Status(t.Context(), "elsewhere"); return err },
		"install": func() error { _, err := c.Plan(t.Context(), elsewhere); return err },
		"uninstall": func() error {
			_, err := c.Uninstall(t.Context(), cluster.UninstallOptions{Manifest: elsewhere.Manifest, Purge: true, Timeout: time.Minute, Progress: func(string) {}})
			return err
		},
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "Type the same command with --namespace fairlead-system") {
			t.Errorf("%s: %v", what, err)
		}
	}
	k.patch("/api/v1/nodes/n2", `{"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "MemoryPressure", "status": "False"}, {"type": "NetworkUnavailable", "status": "False", "reason": "FairleadReady"}]}}`)
	k.ready("n3", true)
}

func checkOptions() cluster.CheckOptions {
	return cluster.CheckOptions{Namespace: namespace, Timeout: kerneltest.Slow(time.Minute), Seconds: 2, Progress: func(string) {}}
}

// noObjects fails if something of a check or an uninstallation is left.
func noObjects(t *testing.T, k *kubelets) {
	t.Helper()
	for _, path := range []string{"/apis/apps/v1/namespaces/" + namespace + "/daemonsets/fairlead-check", "/apis/apps/v1/namespaces/" + namespace + "/daemonsets/fairlead-check-client",
		"/api/v1/namespaces/" + namespace + "/configmaps/fairlead-check", "/apis/apps/v1/namespaces/" + namespace + "/daemonsets/fairlead-uninstall"} {
		if err := k.server.Client().Get().AbsPath(path).Do(context.Background()).Error(); err == nil {
			t.Errorf("%s is left", path)
		}
	}
}

// testCheck checks a cluster in which one node's pod does not answer. No Service works here.
func testCheck(t *testing.T, k *kubelets, c *cluster.Client) {
	k.mu.Lock()
	k.silent["n3"] = true
	k.mu.Unlock()
	out, err := c.Check(t.Context(), checkOptions())
	must(t, err)
	if out.OK || len(out.Nodes) != 3 {
		t.Fatalf("%+v", out)
	}
	for i, n := range out.Nodes {
		want := "pod 127.9.8.3 on node n3: connect: connection refused"
		if i == 2 && (n.Pods.OK != 2 || n.Pods.Tried != 2) || i < 2 && (n.Pods.OK != 1 || n.Pods.Tried != 2 || fmt.Sprint(n.Pods.Errors) != "["+want+"]") {
			t.Errorf("%+v", n)
		}
		if n.Hosts.OK != 2 || n.Service.OK != 0 || n.Service.Tried != 1 || !strings.HasPrefix(n.Service.Errors[0], "Service kubernetes at 10.96.0.1:443: ") || n.DNS.Tried != 0 || n.Error != "" {
			t.Errorf("%+v", n)
		}
	}
	noObjects(t, k)
	k.mu.Lock()
	k.silent["n3"] = false
	k.broken["n2"] = "no room"
	k.mu.Unlock()
	o := checkOptions()
	o.Timeout = 3 * time.Second
	out, err = c.Check(t.Context(), o)
	if err != nil || out.OK || out.Nodes[1].Error != "the pod did not start: CrashLoopBackOff: container fairlead-check-client: no room; container fairlead-check-client has restarted 2 times; its last run ended with exit code 1 (Error)" || out.Nodes[0].Pods.OK != 1 {
		t.Errorf("%+v, %v", out, err)
	}
	noObjects(t, k)
	k.mu.Lock()
	delete(k.broken, "n2")
	k.mu.Unlock()
}

// testCheckEndsEarly removes everything after Ctrl-C, too.
func testCheckEndsEarly(t *testing.T, k *kubelets, c *cluster.Client) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := checkOptions()
	o.Progress = func(text string) {
		if strings.Contains(text, "pods run on 3") {
			cancel()
		}
	}
	if _, err := c.Check(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	noObjects(t, k)
}

// testCheckDeadNode checks a cluster in which one node's kubelet does not answer, so that its pods do not end. The next check
// works, too.
func testCheckDeadNode(t *testing.T, k *kubelets, c *cluster.Client) {
	k.kill("n3", true)
	defer k.kill("n3", false)
	o := checkOptions()
	o.Timeout = 5 * time.Second
	for range 2 {
		began := time.Now()
		out, err := c.Check(t.Context(), o)
		if err != nil || out.OK || len(out.Nodes) != 3 || out.Nodes[2].Error == "" || out.Nodes[0].Error != "" || len(out.Notes) != 0 {
			t.Errorf("%+v, %v", out, err)
		}
		if took := time.Since(began); took > kerneltest.Slow(30*time.Second) {
			t.Errorf("it took %v", took)
		}
		noObjects(t, k)
	}
}

// testUninstallDeadNode uninstalls once more, while one node's kubelet does not answer.
func testUninstallDeadNode(t *testing.T, k *kubelets, c *cluster.Client) {
	k.kill("n3", true)
	defer k.kill("n3", false)
	for range 2 {
		out, err := c.Uninstall(t.Context(), cluster.UninstallOptions{Manifest: options().Manifest, Timeout: 5 * time.Second, Progress: func(string) {}})
		if err != nil || len(out.Nodes) != 3 || len(out.Nodes[2].Errors) != 1 || len(out.Nodes[0].Errors) != 0 ||
			!slices.Contains(out.Kept, "the pods of the DaemonSet fairlead-uninstall on n3 end when the kubelets there answer") {
			t.Errorf("%+v, %v", out, err)
		}
		noObjects(t, k)
	}
}

func uninstall(t *testing.T, c *cluster.Client, o cluster.UninstallOptions) *cluster.Uninstalled {
	t.Helper()
	o.Manifest, o.Timeout, o.Progress = options().Manifest, kerneltest.Slow(time.Minute), func(string) {}
	out, err := c.Uninstall(t.Context(), o)
	must(t, err)
	return out
}

func testUninstall(t *testing.T, k *kubelets, c *cluster.Client) {
	k.mu.Lock()
	k.report["n1"] = node.Report{Attachments: []string{"pods c1 eth0"}, Kept: []string{"/opt/cni/bin/ptp"}}
	k.mu.Unlock()
	must(t, k.server.Create("/apis/coordination.k8s.io/v1/namespaces/"+namespace+"/leases", `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: node.n1}}`))
	must(t, k.server.Create("/apis/coordination.k8s.io/v1/namespaces/"+namespace+"/leases", `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: vni.7}}`))
	dry := uninstall(t, c, cluster.UninstallOptions{DryRun: true})
	if s, err := c.Status(t.Context(), namespace); err != nil || !s.Ready {
		t.Errorf("after a dry run: %+v, %v", s, err)
	}
	k.patch("/apis/rbac.authorization.k8s.io/v1/clusterroles/fairlead", `{"metadata": {"labels": {"app.kubernetes.io/name": "theirs"}}}`)
	out := uninstall(t, c, cluster.UninstallOptions{})
	if len(dry.Removed) != 11 || len(out.Removed) != 10 || len(dry.Nodes) != 3 {
		t.Errorf("dry: %+v\n%+v", dry, out)
	}
	if len(out.Nodes) != 3 || len(out.Nodes[0].Attachments) != 1 || !slices.Contains(out.Kept, "ClusterRole fairlead: it lacks the label app.kubernetes.io/name=fairlead, so Fairlead did not create it") ||
		!slices.Contains(out.Kept, "Namespace fairlead-system: to delete it, type the command with --purge") {
		t.Errorf("%+v", out)
	}
	exists := func(path string) bool {
		return k.server.Client().Get().AbsPath(path).Do(t.Context()).Error() == nil
	}
	for path, want := range map[string]bool{
		"/apis/fairlead.io/v1alpha1/networks/default":                                         true,
		"/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases/vni.7":              true,
		"/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases/node.n1":            false,
		"/apis/apps/v1/namespaces/" + namespace + "/daemonsets/fairlead":                      false,
		"/api/v1/namespaces/" + namespace + "/configmaps/fairlead":                            false,
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/fairlead":                            true,
		"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/fairlead":                     false,
		"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/fairlead-own-node": false,
	} {
		if exists(path) != want {
			t.Errorf("%s exists: %v, want %v", path, !want, want)
		}
	}
	raw, err := k.server.Client().Get().AbsPath("/api/v1/nodes/n1").Do(t.Context()).Raw()
	if err != nil || strings.Contains(string(raw), "fairlead.io/node") {
		t.Errorf("%v, %s", err, raw)
	}
	if raw, err := k.server.Client().Get().AbsPath("/api/v1/nodes/n2").Do(t.Context()).Raw(); err != nil || strings.Contains(string(raw), "NetworkUnavailable") || !strings.Contains(string(raw), "MemoryPressure") {
		t.Errorf("%v, %s", err, raw)
	}
	noObjects(t, k)
}

// testPurge removes the rest, with nothing but the values to go by.
func testPurge(t *testing.T, k *kubelets, c *cluster.Client) {
	k.mu.Lock()
	delete(k.report, "n1")
	k.mu.Unlock()
	// Another component's definition stays, although the values have podNetworks.
	const attachments = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/network-attachment-definitions.k8s.cni.cncf.io"
	withNetworks := options("podNetworks.enabled=true")
	must(t, c.Apply(t.Context(), definitions(t, withNetworks), false, func(cluster.Change) {}))
	out, err := c.Uninstall(t.Context(), cluster.UninstallOptions{Manifest: withNetworks.Manifest, Purge: true, Timeout: kerneltest.Slow(time.Minute), Progress: func(string) {}})
	must(t, err)
	if err := k.server.Client().Get().AbsPath(attachments).Do(t.Context()).Error(); err != nil || !slices.Contains(out.Kept, "CustomResourceDefinition network-attachment-definitions.k8s.cni.cncf.io: other components use it, too") {
		t.Errorf("%v, %q", err, out.Kept)
	}
	k.server.Delete(attachments)
	if len(out.Nodes) != 3 || len(out.Nodes[0].Attachments) != 0 || !slices.Contains(out.Removed, "Namespace fairlead-system") || !slices.Contains(out.Removed, "CustomResourceDefinition networks.fairlead.io") {
		t.Errorf("%+v", out)
	}
	kerneltest.Within(t, time.Minute, func() error {
		for _, path := range []string{"/api/v1/namespaces/" + namespace, "/apis/fairlead.io/v1alpha1/networks"} {
			if err := k.server.Client().Get().AbsPath(path).Do(t.Context()).Error(); err == nil {
				return fmt.Errorf("%s is left", path)
			}
		}
		return nil
	})
}

// TestConnect reports what is wrong with a kubeconfig.
func TestConnect(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/config"
	must(t, os.WriteFile(file, []byte("apiVersion: v1\nkind: Config\ncontexts: [{name: a, context: {cluster: a}}, {name: b, context: {cluster: b}}, {name: u, context: {cluster: a, user: nobody}}]\nclusters: [{name: a, cluster: {server: 'https://192.0.2.1'}}]\n"), 0o600))
	for want, a := range map[string]cluster.Access{
		"there is no kubeconfig /nowhere\nName the file with --kubeconfig":      {Paths: []string{"/nowhere"}},
		"there is no kubeconfig /elsewhere":                                     {Kubeconfig: "/elsewhere", Paths: []string{file}, InCluster: true},
		"has no context \"c\"\nName another with --context; there are: a, b, u": {Paths: []string{file}, Context: "c"},
		"the service account of this pod":                                       {InCluster: true},
		`has no cluster "b", which its context "b" names`:                       {Paths: []string{file}, Context: "b"},
		`has no user "nobody", which its context "u" names`:                     {Paths: []string{file}, Context: "u"},
	} {
		if _, err := cluster.Connect(a); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", a, err, want)
		}
	}
	if c, err := cluster.Connect(cluster.Access{Paths: []string{"/nowhere", file}, Context: "a"}); err != nil || c.Server() != "https://192.0.2.1" {
		t.Errorf("%v", err)
	}
}
