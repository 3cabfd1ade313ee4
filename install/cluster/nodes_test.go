package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/install/cluster"
	"github.com/fairlead/fairlead/install/cluster/node"
	"github.com/fairlead/fairlead/install/cluster/probe"
	"github.com/fairlead/fairlead/internal/kubetest"
)

// kubelets stands in for the kubelets and the scheduler: it binds the pods of DaemonSets, reports them as running, serves
// their logs, and deletes them. The pods of a check run for real, on addresses of the loopback link.
type kubelets struct {
	t      *testing.T
	server *kubetest.Server
	port   int32

	mu     sync.Mutex
	logs   map[string]string             // by pod
	stop   map[string]context.CancelFunc // by pod
	nodes  map[string]string             // pod address by node
	broken map[string]string             // nodes whose pods do not start, and why
	silent map[string]bool               // nodes whose listeners do not listen
	dead   map[string]bool               // nodes that neither start nor end pods
	report map[string]node.Report        // what uninstall finds on a node

	handOver bool // the last pod of an uninstallation hands its node over to flanneld
}

// startKubelets starts with nodes n1, n2 and so on.
func startKubelets(t *testing.T, server *kubetest.Server, n int) *kubelets {
	t.Helper()
	k := &kubelets{t: t, server: server, logs: map[string]string{}, stop: map[string]context.CancelFunc{}, nodes: map[string]string{},
		broken: map[string]string{}, silent: map[string]bool{}, dead: map[string]bool{}, report: map[string]node.Report{}}
	logs := httptest.NewUnstartedServer(http.HandlerFunc(k.serveLog))
	logs.Listener.Close()
	var err error
	if logs.Listener, err = net.Listen("tcp", "0.0.0.0:0"); err != nil {
		t.Fatal(err)
	}
	logs.Config.ErrorLog = log.New(io.Discard, "", 0) // a check of the hosts connects and says nothing
	logs.StartTLS()
	k.port = int32(logs.Listener.Addr().(*net.TCPAddr).Port)
	for i := range n {
		name := fmt.Sprintf("n%d", i+1)
		k.nodes[name] = fmt.Sprintf("127.9.8.%d", i+1)
		server.Node(name, nil, fmt.Sprintf("10.244.%d.0/24", i))
		k.patch("/api/v1/nodes/"+name, `{"metadata": {"labels": {"kubernetes.io/os": "linux"}}}`)
		k.ready(name, false)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			k.round(ctx)
			time.Sleep(100 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { cancel(); <-done; logs.Close() })
	return k
}

func (k *kubelets) patch(path, body string) {
	sub := ""
	if strings.Contains(body, `"status"`) {
		sub = "/status"
	}
	kind := types.MergePatchType
	if strings.HasPrefix(path, "/api/v1/nodes/") {
		kind = types.StrategicMergePatchType // it keeps other conditions
	}
	_ = k.server.Client().Patch(kind).AbsPath(path + sub).Body([]byte(body)).Do(context.Background()).Error()
}

// ready reports a node's state, its address and the port of its kubelet.
func (k *kubelets) ready(name string, is bool) {
	status, message := "False", "cni plugin not initialized"
	if is {
		status, message = "True", "kubelet is posting ready status"
	}
	k.patch("/api/v1/nodes/"+name, fmt.Sprintf(`{"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": {"kubeletEndpoint": {"Port": %d}},
		"conditions": [{"type": "Ready", "status": %q, "message": %q, "lastHeartbeatTime": %q}]}}`, k.port, status, message, time.Now().Format(time.RFC3339)))
}

// kill makes a node's kubelet stop, or go on.
func (k *kubelets) kill(name string, dead bool) {
	k.mu.Lock()
	k.dead[name] = dead
	k.mu.Unlock()
	if dead { // as kube-controller-manager does after a while
		k.patch("/api/v1/nodes/"+name, `{"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}]}}`)
	} else {
		k.ready(name, true)
	}
}

// round does what is due for every pod.
func (k *kubelets) round(ctx context.Context) {
	raw, err := k.server.Client().Get().AbsPath("/api/v1/pods").Do(ctx).Raw()
	if err != nil {
		return
	}
	var all corev1.PodList
	if json.Unmarshal(raw, &all) != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range all.Items {
		k.pod(ctx, &all.Items[i])
	}
}

func (k *kubelets) pod(ctx context.Context, p *corev1.Pod) {
	path := "/api/v1/namespaces/" + p.Namespace + "/pods/" + p.Name
	switch {
	case k.dead[p.Spec.NodeName]:
	case p.DeletionTimestamp != nil:
		if k.stop[p.Name] != nil {
			k.stop[p.Name]()
		}
		body := []byte(`{"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}`)
		_ = k.server.Client().Delete().AbsPath(path).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	case p.Spec.NodeName == "":
		terms := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		name := terms[0].MatchFields[0].Values[0]
		_ = k.server.Create(path+"/binding", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": %q}, "target": {"kind": "Node", "name": %q}}`, p.Name, name))
	case p.Status.Phase == corev1.PodPending:
		k.run(p, path)
	}
}

// run starts a pod's program, and reports the pod as running.
func (k *kubelets) run(p *corev1.Pod, path string) {
	c := p.Spec.Containers[0].Name
	if why := k.broken[p.Spec.NodeName]; why != "" {
		k.patch(path, fmt.Sprintf(`{"status": {"phase": "Pending", "containerStatuses": [{"name": %q, "image": "x", "imageID": "", "ready": false, "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff", "message": %q}},
			"lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}}`, c, why))
		k.logs[p.Name] = "first line\nlevel=ERROR msg=\"" + why + "\"\n"
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	k.stop[p.Name] = cancel
	k.t.Cleanup(cancel)
	address := k.nodes[p.Spec.NodeName]
	name := p.Spec.NodeName
	switch p.Labels["app.kubernetes.io/name"] {
	case "fairlead":
		defer k.ready(name, true)
	case "fairlead-check":
		if !k.silent[name] {
			go func() { _ = probe.Listen(ctx, fmt.Sprintf("%s:%d", address, cluster.CheckPort), name) }()
		}
	case "fairlead-check-client":
		go func() {
			raw, _ := k.server.Client().Get().AbsPath("/api/v1/namespaces/" + p.Namespace + "/configmaps/fairlead-check").Do(ctx).Raw()
			var m corev1.ConfigMap
			if json.Unmarshal(raw, &m) != nil {
				return
			}
			t, err := probe.DecodeTargets(m.BinaryData["targets.json.gz"])
			if err != nil {
				return
			}
			k.setLog(p.Name, probe.Run(ctx, name, t))
		}()
	case "fairlead-uninstall":
		k.ready(name, false)
		k.handOver = slices.Contains(p.Spec.Containers[0].Args, "--hand-over")
		r := k.report[name]
		r.Node = name
		go k.setLog(p.Name, r)
	}
	k.patch(path, fmt.Sprintf(`{"status": {"phase": "Running", "podIP": %q, "podIPs": [{"ip": %q}], "conditions": [{"type": "Ready", "status": "True"}],
		"containerStatuses": [{"name": %q, "image": "x", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {"startedAt": %q}}}]}}`, address, address, c, time.Now().Format(time.RFC3339)))
}

func (k *kubelets) setReport(name string, r node.Report) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.report[name] = r
}

func (k *kubelets) handsOver() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.handOver
}

func (k *kubelets) setLog(pod string, v any) {
	raw, _ := json.Marshal(v)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.logs[pod] = string(raw) + "\n"
}

// serveLog answers as a kubelet: /containerLogs/NAMESPACE/POD/CONTAINER.
func (k *kubelets) serveLog(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f := strings.Split(r.URL.Path, "/"); len(f) == 5 {
		fmt.Fprint(w, k.logs[f[3]])
	}
}
