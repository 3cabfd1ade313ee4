package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/contrib/kubernetes"
	"github.com/fairlead/fairlead/install/cluster"
	"github.com/fairlead/fairlead/install/cluster/node"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

const (
	flannelConfig = `{apiVersion: v1, kind: ConfigMap, metadata: {name: kube-flannel-cfg, namespace: default}, data: {
		cni-conf.json: '{"name": "cbr0", "cniVersion": "0.3.1", "plugins": [{"type": "flannel", "delegate": {"isDefaultGateway": true}}, {"type": "portmap"}]}',
		net-conf.json: '{"Network": "10.244.0.0/16", "EnableNFTables": true, "Backend": {"Type": "vxlan", "Port": 4789}}'}}`
	flannelDaemonSet = `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: kube-flannel-ds, namespace: default}, spec: {selector: {matchLabels: {app: flannel}},
		template: {metadata: {labels: {app: flannel}}, spec: {
			affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [linux]}]}]}}},
			tolerations: [{operator: Exists, effect: NoSchedule}],
			containers: [{name: kube-flannel, image: x, command: [/opt/bin/flanneld], args: [%s]}],
			volumes: [{name: run, hostPath: {path: /run/flannel}}, {name: cfg, configMap: {name: kube-flannel-cfg}}]}}}}`
	flannelSets = "/apis/apps/v1/namespaces/default/daemonsets"
	switchLabel = "fairlead.io/pod-network"
)

func withFlannel() cluster.Options {
	o := options()
	o.Flannel = true
	return o
}

// get reads an object.
func get[T any](t *testing.T, k *kubelets, path string) (o T) {
	t.Helper()
	raw, err := k.server.Client().Get().AbsPath(path).Do(context.Background()).Raw()
	if err == nil {
		err = json.Unmarshal(raw, &o)
	}
	must(t, err)
	return o
}

// annotate sets flannel's annotations of a Node, as flanneld would.
func (k *kubelets) annotate(node, typ, data, ip string) {
	k.patch("/api/v1/nodes/"+node, fmt.Sprintf(`{"metadata": {"annotations": {"flannel.alpha.coreos.com/kube-subnet-manager": "true", "flannel.alpha.coreos.com/backend-type": %q,
		"flannel.alpha.coreos.com/backend-data": %q, "flannel.alpha.coreos.com/public-ip": %q}}}`, typ, data, ip))
}

const vtep = `{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}`

// startFlannel creates flannel's objects, with flannel's annotations on all Nodes.
func startFlannel(t *testing.T, k *kubelets) {
	t.Helper()
	must(t, k.server.Create("/api/v1/namespaces/default/configmaps", flannelConfig))
	must(t, k.server.Create(flannelSets, fmt.Sprintf(flannelDaemonSet, "--ip-masq, --kube-subnet-mgr")))
	for name := range k.nodes {
		k.server.NodeAddresses(name, "127.0.0.1", addressOf(name)) // the first one is that of the kubelet
		k.annotate(name, "vxlan", vtep, addressOf(name))
	}
}

// addressOf returns the address of a node for other nodes: 192.0.2.2 for n2.
func addressOf(node string) string { return "192.0.2." + strings.TrimPrefix(node, "n") }

// testFlannelRefused checks what cannot be switched, before the first change.
func testFlannelRefused(t *testing.T, k *kubelets, c *cluster.Client) {
	refused := func(want string) {
		t.Helper()
		if _, err := c.Plan(t.Context(), withFlannel()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	refused("has no flannel to switch from: no other pod network is installed")
	must(t, k.server.Create(flannelSets, fmt.Sprintf(flannelDaemonSet, "--ip-masq")))
	refused("has no argument --kube-subnet-mgr, so it keeps its subnets in etcd")
	k.server.Delete(flannelSets, "kube-flannel-ds")
	startFlannel(t, k)
	ip := addressOf("n2")
	for want, do := range map[string]func(){
		`node n2: the annotation flannel.alpha.coreos.com/backend-data is "{"`:                                                func() { k.annotate("n2", "vxlan", "{", ip) },
		"node n2 uses flannel's backend udp, but the ConfigMap has vxlan":                                                     func() { k.annotate("n2", "udp", "null", ip) },
		"node n2: flannel uses the address 203.0.113.9, which is not an InternalIP of the Node\nFairlead uses the InternalIP": func() { k.annotate("n2", "vxlan", vtep, "203.0.113.9") },
	} {
		do()
		refused(want)
	}
	k.annotate("n2", "vxlan", vtep, ip)
	configMap := "/api/v1/namespaces/default/configmaps/kube-flannel-cfg"
	for want, conf := range map[string]string{
		"flannel uses the backend wireguard: only vxlan and host-gw": `{"Network": "10.244.0.0/16", "Backend": {"Type": "wireguard"}}`,
		"net-conf.json: Backend.Type is":                             `{"Network": "10.244.0.0/16", "Backend": {"Type": "udp"}}`,
		"net-conf.json: Network: is missing":                         `{}`,
	} {
		k.patch(configMap, fmt.Sprintf(`{"data": {"net-conf.json": %q}}`, conf))
		refused(want)
	}
	k.server.Delete(configMap)
	must(t, k.server.Create("/api/v1/namespaces/default/configmaps", flannelConfig))
	const networks = "/apis/fairlead.io/v1alpha1/networks"
	must(t, c.Apply(t.Context(), definitions(t, options()), false, func(cluster.Change) {}))
	for spec, want := range map[string]string{
		`{subnets: [{cidr: 10.244.0.0/16, assign: podCIDR}], backends: [{type: wireguard}]}`:         "it lacks flannel's backend vxlan",
		`{subnets: [{cidr: 10.244.0.0/16, assign: podCIDR}], backends: [{type: vxlan}]}`:             "it lacks flannel's backend vxlan, or has another VNI or port",
		`{subnets: [{cidr: 10.244.0.0/16, assign: block}], backends: [{type: vxlan, port: 4789}]}`:   "it has no subnet 10.244.0.0/16 with assign podCIDR",
		`{subnets: [{cidr: 10.245.0.0/16, assign: podCIDR}], backends: [{type: vxlan, port: 4789}]}`: "it has no subnet 10.244.0.0/16",
	} {
		must(t, k.server.Create(networks, "{apiVersion: fairlead.io/v1alpha1, kind: Network, metadata: {name: default}, spec: "+spec+"}"))
		refused(want)
		k.server.Delete(networks + "/default")
	}
	if _, err := c.Plan(t.Context(), options()); err == nil || !strings.Contains(err.Error(), "type: fairlead kubernetes install --from flannel") {
		t.Errorf("without --from: %v", err)
	}
}

// definitions returns the definitions in the manifest.
func definitions(t *testing.T, o cluster.Options) []*cluster.Object {
	t.Helper()
	raw, err := kubernetes.Render(o.Manifest)
	must(t, err)
	all, err := cluster.Parse(raw)
	must(t, err)
	return slices.DeleteFunc(all, func(o *cluster.Object) bool { return o.GetKind() != "CustomResourceDefinition" })
}

// flannelPods returns the names of flannel's pods by node.
func flannelPods(t *testing.T, k *kubelets) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, p := range get[corev1.PodList](t, k, "/api/v1/namespaces/default/pods").Items {
		if p.DeletionTimestamp == nil && p.Spec.NodeName != "" {
			out[p.Spec.NodeName] = p.Name
		}
	}
	return out
}

func waitForFlannel(t *testing.T, k *kubelets, want int) (pods map[string]string) {
	t.Helper()
	kerneltest.Within(t, 30*time.Second, func() error {
		if pods = flannelPods(t, k); len(pods) != want {
			return fmt.Errorf("flannel's pods are %v, want %d", pods, want)
		}
		return nil
	})
	return pods
}

// testSwitch switches nodes, stops at one whose agent does not start, and goes on.
func testSwitch(t *testing.T, k *kubelets, c *cluster.Client) {
	before := waitForFlannel(t, k, 3)
	set := get[appsv1.DaemonSet](t, k, flannelSets+"/kube-flannel-ds")
	switchNodes := func(nodes ...string) error {
		t.Helper()
		p, err := c.Plan(t.Context(), withFlannel())
		must(t, err)
		if p.Flannel == nil || fmt.Sprint(p.Flannel.Nodes) != "[n1 n2 n3]" || p.Flannel.Backend != "vxlan" {
			t.Fatalf("%+v", p.Flannel)
		}
		must(t, c.Apply(t.Context(), p.Objects, false, func(cluster.Change) {}))
		return c.Switch(t.Context(), p.Flannel, cluster.SwitchOptions{Namespace: namespace, Nodes: nodes, Timeout: kerneltest.Slow(10 * time.Second), Progress: func(cluster.Progress) {}})
	}
	must(t, switchNodes("n2"))
	for node, pod := range waitForFlannel(t, k, 2) {
		if before[node] != pod {
			t.Errorf("flannel's pod on %s was restarted", node)
		}
	}
	// Somebody applies flannel's manifest again.
	affinity, err := json.Marshal(set.Spec.Template.Spec.Affinity)
	must(t, err)
	k.patch(flannelSets+"/kube-flannel-ds", `{"spec": {"updateStrategy": {"type": "RollingUpdate"}, "template": {"spec": {"affinity": {"nodeAffinity": null}}}}}`)
	k.patch(flannelSets+"/kube-flannel-ds", fmt.Sprintf(`{"spec": {"template": {"spec": {"affinity": %s}}}}`, affinity))
	waitForFlannel(t, k, 3)
	must(t, switchNodes("n2"))
	waitForFlannel(t, k, 2)

	conf := get[corev1.ConfigMap](t, k, "/api/v1/namespaces/"+namespace+"/configmaps/fairlead").Data["agent.yaml"]
	for _, want := range []string{"flannel: {prefix: flannel.alpha.coreos.com, subnetFile: /run/flannel/subnet.env}", "name: cbr0", "assign: podCIDR", "port: 4789", "nat: true", "fuse: false"} {
		if !strings.Contains(conf, want) {
			t.Errorf("no %q in\n%s", want, conf)
		}
	}
	k.mu.Lock()
	k.broken["n3"] = "no default route"
	k.mu.Unlock()
	if err := switchNodes(); err == nil || !strings.Contains(err.Error(), "switch node n3: ") || !strings.Contains(err.Error(), "To go back, type: fairlead kubernetes uninstall --node n3") {
		t.Errorf("%v", err)
	}
	if left := flannelPods(t, k); len(left) != 0 {
		t.Errorf("flannel's pods are %v", left)
	}
	k.mu.Lock()
	delete(k.broken, "n3")
	k.mu.Unlock()
	must(t, switchNodes())

	if out := uninstall(t, c, cluster.UninstallOptions{Nodes: []string{"n2"}}); fmt.Sprint(out.Back) != "[n2]" || len(out.Nodes) != 1 || out.Nodes[0].Node != "n2" || len(out.Removed) > 0 {
		t.Errorf("%+v", out)
	}
	if pods := waitForFlannel(t, k, 1); pods["n2"] == "" {
		t.Errorf("flannel's pods are %v", pods)
	}
	if _, err := c.Uninstall(t.Context(), cluster.UninstallOptions{Manifest: options().Manifest, Nodes: []string{"n2"}}); err == nil || !strings.Contains(err.Error(), "--node n2: this node was not switched from flannel: n1, n3") {
		t.Errorf("%v", err)
	}
	must(t, switchNodes("n2"))

	dry := uninstall(t, c, cluster.UninstallOptions{DryRun: true})
	k.setReport("n3", node.Report{Errors: []string{"busy"}})
	out := uninstall(t, c, cluster.UninstallOptions{})
	k.setReport("n3", node.Report{})
	if fmt.Sprint(dry.Back, out.Back) != "[n1 n2 n3] [n1 n2 n3]" || len(out.Nodes) != 3 {
		t.Errorf("dry: %+v\n%+v", dry, out)
	}
	waitForFlannel(t, k, 3)
	now := get[appsv1.DaemonSet](t, k, flannelSets+"/kube-flannel-ds")
	a, err1 := json.Marshal(set.Spec)
	b, err2 := json.Marshal(now.Spec)
	if err1 != nil || err2 != nil || string(a) != string(b) || now.Annotations["fairlead.io/before-switch"] != "" {
		t.Errorf("flannel's DaemonSet was\n%s\nand is\n%s %v", a, b, now.Annotations)
	}
	// The node that was not cleaned is handed over by the next command. A third one finds a flannel like any other.
	for _, handOver := range []bool{true, false} {
		if out := uninstall(t, c, cluster.UninstallOptions{}); len(out.Back) > 0 || k.handsOver() != handOver {
			t.Errorf("hand-over: want %v; %+v", handOver, out)
		}
	}
	for name := range k.nodes {
		if n := get[corev1.Node](t, k, "/api/v1/nodes/"+name); n.Labels[switchLabel] != "" {
			t.Errorf("%s has the labels %v", name, n.Labels)
		}
	}
}

// testSwitchCompleted deletes flannel after the switch, and upgrades with the default values.
func testSwitchCompleted(t *testing.T, k *kubelets, c *cluster.Client) {
	p, err := c.Plan(t.Context(), withFlannel())
	must(t, err)
	must(t, c.Apply(t.Context(), p.Objects, false, func(cluster.Change) {}))
	must(t, c.Switch(t.Context(), p.Flannel, cluster.SwitchOptions{Namespace: namespace, Timeout: kerneltest.Slow(10 * time.Second), Progress: func(cluster.Progress) {}}))
	k.server.Delete(flannelSets, "kube-flannel-ds")
	before := get[corev1.ConfigMap](t, k, "/api/v1/namespaces/"+namespace+"/configmaps/fairlead").Data["agent.yaml"]
	must(t, k.server.Create("/apis/fairlead.io/v1alpha1/networks", `{apiVersion: fairlead.io/v1alpha1, kind: Network, metadata: {name: default},
		spec: {subnets: [{cidr: 10.244.0.0/16, assign: podCIDR}], backends: [{type: vxlan, port: 4789}], nat: true}}`))
	if p, err = c.Plan(t.Context(), options()); err != nil || !p.Kept || len(p.Warnings) > 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	must(t, c.Apply(t.Context(), p.Objects, false, func(cluster.Change) {}))
	must(t, c.Wait(t.Context(), namespace, kerneltest.Slow(time.Minute), func(cluster.Progress) {}))
	must(t, c.EndSwitch(t.Context()))
	if after := get[corev1.ConfigMap](t, k, "/api/v1/namespaces/"+namespace+"/configmaps/fairlead").Data["agent.yaml"]; after != before {
		t.Errorf("the configuration was\n%s\nand is\n%s", before, after)
	}
	set := get[appsv1.DaemonSet](t, k, "/apis/apps/v1/namespaces/"+namespace+"/daemonsets/fairlead")
	if _, has := set.Spec.Template.Spec.NodeSelector[switchLabel]; has || set.Status.DesiredNumberScheduled != 3 {
		t.Errorf("%+v", set)
	}
	for name := range k.nodes {
		if n := get[corev1.Node](t, k, "/api/v1/nodes/"+name); n.Labels[switchLabel] != "" {
			t.Errorf("%s has the labels %v", name, n.Labels)
		}
	}
	if out := uninstall(t, c, cluster.UninstallOptions{Purge: true}); len(out.Back) > 0 || len(out.Nodes) != 3 {
		t.Errorf("%+v", out)
	}
}
