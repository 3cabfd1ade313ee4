package podnetworks_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/podnetworks"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/agent/store/kube"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/contrib/kubernetes"
	"github.com/fairlead/fairlead/internal/kubetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

const (
	system      = "fairlead-system"
	definitions = "/apis/k8s.cni.cncf.io/v1/namespaces/shop/network-attachment-definitions"
	annotation  = "k8s.v1.cni.cncf.io/network-status"
)

// cluster is an API server with the published objects, two nodes, and the credentials of the agent on node n1.
type cluster struct {
	*kubetest.Server
	t     *testing.T
	agent rest.Interface
}

// TestKubernetes runs all tests against one API server, as the agent of one node.
func TestKubernetes(t *testing.T) {
	kerneltest.OptIn(t, "FAIRLEAD_KUBERNETES")
	c := newCluster(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *cluster)
	}{
		{"definitions", testDefinitions}, {"questions", testQuestions}, {"status", testStatus}, {"permissions", testPermissions}, {"away", testAway},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, c) })
	}
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Server: kubetest.Start(t), t: t}
	manifest, err := kubernetes.Render(kubernetes.Options{Namespace: system, Values: kubernetes.Values{
		"podNetworks": map[string]any{"enabled": true}, "policy": map[string]any{"enabled": false}, // with policy, an agent lists all pods
	}})
	if err != nil {
		t.Fatal(err)
	}
	c.kubectl(string(manifest), "apply", "-f", "-")
	c.Node("n1", []string{"192.0.2.1"})
	c.Node("n2", []string{"192.0.2.2"})
	c.kubectl("", "create", "namespace", "shop")
	for _, namespace := range []string{"shop", system} {
		c.kubectl("", "-n", namespace, "create", "serviceaccount", "default")
	}
	uid := c.pod(system, "agent", "n1", "fairlead")
	token := c.kubectl("", "-n", system, "create", "token", "fairlead", "--bound-object-kind=Pod", "--bound-object-name=agent", "--bound-object-uid="+uid)
	config := rest.CopyConfig(c.Config)
	config.BearerToken = strings.TrimSpace(token)
	if c.agent, err = kube.Client(kube.Options{Config: config}); err != nil {
		t.Fatal(err)
	}
	kerneltest.Within(t, time.Minute, func() error { return c.agent.Get().AbsPath(definitions).Do(t.Context()).Error() })
	return c
}

// kubectl runs kubectl as an administrator and returns its output.
func (c *cluster) kubectl(stdin string, args ...string) string {
	c.t.Helper()
	args = append([]string{"--server=" + c.Config.Host, "--token=" + c.Config.BearerToken, "--insecure-skip-tls-verify"}, args...)
	cmd := exec.Command(kubetest.Program(c.t, "cmd/kubectl"), args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "HOME="+c.t.TempDir())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args[3:], " "), err, stderr.String())
	}
	return string(out)
}

// pod creates a pod on a node and returns its UID.
func (c *cluster) pod(namespace, name, node, account string) string {
	c.t.Helper()
	c.kubectl(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q, "namespace": %q, "annotations": {"a": "b"}, "labels": {"l": "1"}},
		"spec": {"nodeName": %q, "serviceAccountName": %q, "containers": [{"name": "c", "image": "i"}]}}`, name, namespace, node, account), "create", "-f", "-")
	return c.kubectl("", "-n", namespace, "get", "pod", name, "-o", "jsonpath={.metadata.uid}")
}

// manager starts the agent's part on a new directory.
func (c *cluster) manager(t *testing.T, dir local.Dir) *podnetworks.Manager {
	t.Helper()
	m := podnetworks.NewManager(podnetworks.Options{Client: c.agent, Dir: podstate.Open(dir), Log: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return m
}

// define creates or replaces a NetworkAttachmentDefinition.
func (c *cluster) define(name, config string, annotations string) {
	c.t.Helper()
	c.kubectl(fmt.Sprintf(`{"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": %q, "namespace": "shop", "annotations": {%s}}, "spec": {"config": %q}}`,
		name, annotations, config), "apply", "-f", "-")
}

func newDir(t *testing.T) local.Dir {
	t.Helper()
	run, err := os.MkdirTemp("", "fl") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	return local.Open(t.TempDir(), run)
}

// wantConfig waits until a definition on disk has a configuration.
func wantConfig(t *testing.T, d podstate.Dir, name, config string) {
	t.Helper()
	kerneltest.Within(t, time.Minute, func() error {
		x, err := d.Definition("shop", name)
		if err == nil && x.Config != config {
			err = fmt.Errorf("%s has %q, want %q", name, x.Config, config)
		}
		return err
	})
}

func wantNoFile(t *testing.T, d podstate.Dir, name string) {
	t.Helper()
	kerneltest.Until(t, func() bool {
		_, err := d.Definition("shop", name)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// testDefinitions checks that the files follow the API, and that files of deleted definitions go when an agent starts.
func testDefinitions(t *testing.T, c *cluster) {
	dir := newDir(t)
	d := podstate.Open(dir)
	if err := d.WriteDefinition(podstate.Definition{Namespace: "shop", Name: "deleted", Config: "{}"}); err != nil {
		t.Fatal(err)
	}
	c.define("first", `{"type": "bridge"}`, "")
	c.manager(t, dir)
	wantConfig(t, d, "first", `{"type": "bridge"}`)
	wantNoFile(t, d, "deleted")
	c.define("second", `{"type": "macvlan"}`, `"k8s.v1.cni.cncf.io/resourceName": "example.com/nic"`)
	wantConfig(t, d, "second", `{"type": "macvlan"}`)
	if x, err := d.Definition("shop", "second"); err != nil || x.Resource != "example.com/nic" {
		t.Errorf("%+v, %v", x, err)
	}
	c.define("first", `{"type": "ptp"}`, "")
	wantConfig(t, d, "first", `{"type": "ptp"}`)
	c.kubectl("", "-n", "shop", "delete", "net-attach-def", "first")
	wantNoFile(t, d, "first")
}

// testQuestions asks the agent over its socket, as the plugin does.
func testQuestions(t *testing.T, c *cluster) {
	dir := newDir(t)
	m := podnetworks.NewManager(podnetworks.Options{Client: c.agent, Dir: podstate.Open(dir), Log: slog.New(slog.DiscardHandler)})
	l, err := address.Listen(dir.Socket())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = (&address.Server{Handlers: m.Handlers()}).Serve(ctx, l) }()
	defer func() { stop(); <-done }()
	c.define("asked", `{"type": "ptp"}`, `"k8s.v1.cni.cncf.io/resourceName": "example.com/nic"`)
	var got podstate.Definition
	err = dir.Call(t.Context(), podstate.OpDefinition, podstate.DefinitionArgs{Namespace: "shop", Name: "asked"}, &got)
	if err != nil || got.Config != `{"type": "ptp"}` || got.Resource != "example.com/nic" {
		t.Errorf("%+v, %v", got, err)
	}
	for name, want := range map[string]string{"missing": "it does not exist in the Kubernetes API: create it", "../x": "invalid characters"} {
		err := dir.Call(t.Context(), podstate.OpDefinition, podstate.DefinitionArgs{Namespace: "shop", Name: name}, &got)
		if e, ok := errors.AsType[*local.Error](err); !ok || !strings.Contains(e.Msg, want) || name == "missing" && e.Code != cni.CodeInvalidNetworkConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// attached returns the record of a pod on two networks.
func attached(id, name, uid string) *podstate.Pod {
	return &podstate.Pod{ContainerID: id, IfName: "eth0", Network: "pods", Namespace: "shop", Name: name, UID: uid, Attached: true, Attachments: []podstate.Attachment{
		{Name: "pods", IfName: "eth0", Default: true, Config: json.RawMessage(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp"}]}`),
			Result: json.RawMessage(`{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "/n"}], "ips": [{"address": "10.0.0.5/24", "gateway": "10.0.0.1", "interface": 0}], "routes": [{"dst": "0.0.0.0/0"}]}`)},
		{Namespace: "shop", Name: "lan", IfName: "net1", Config: json.RawMessage(`{"cniVersion": "0.3.1", "name": "other", "plugins": [{"type": "macvlan"}]}`),
			Result: json.RawMessage(`{"cniVersion": "0.3.1", "interfaces": [{"name": "net1", "mac": "02:00:00:00:00:02", "sandbox": "/n"}], "ips": [{"version": "4", "address": "192.168.7.50/24", "interface": 0}]}`)},
	}}
}

func (c *cluster) annotation(name string) string {
	c.t.Helper()
	return c.kubectl("", "-n", "shop", "get", "pod", name, "-o", `jsonpath={.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}`)
}

// testStatus checks the annotation of a pod, and that a later pod with the same name does not get it.
func testStatus(t *testing.T, c *cluster) {
	dir := newDir(t)
	d := podstate.Open(dir)
	uid := c.pod("shop", "web", "n1", "default")
	c.pod("shop", "later", "n1", "default")
	unfinished := attached("c3", "unfinished", c.pod("shop", "unfinished", "n1", "default"))
	unfinished.Attached = false
	for _, p := range []*podstate.Pod{attached("c1", "web", uid), attached("c2", "later", "00000000-0000-0000-0000-000000000000"), unfinished, attached("c4", "gone", uid)} {
		if err := d.WritePod(p); err != nil {
			t.Fatal(err)
		}
	}
	c.manager(t, dir)
	kerneltest.Until(t, func() bool { return c.annotation("web") != "" })
	var list []struct {
		Name, Interface, MAC string
		IPs, Gateway         []string
		Default              bool
	}
	if err := json.Unmarshal([]byte(c.annotation("web")), &list); err != nil || len(list) != 2 {
		t.Fatalf("%v in %s", err, c.annotation("web"))
	}
	if e := list[0]; e.Name != "pods" || !e.Default || e.Interface != "eth0" || len(e.IPs) != 1 || e.IPs[0] != "10.0.0.5" || len(e.Gateway) != 1 || e.Gateway[0] != "10.0.0.1" {
		t.Errorf("%+v", e)
	}
	if e := list[1]; e.Name != "shop/lan" || e.Default || e.Interface != "net1" || e.MAC != "02:00:00:00:00:02" || len(e.IPs) != 1 || e.IPs[0] != "192.168.7.50" {
		t.Errorf("%+v", e)
	}
	unfinished.Attached = true // its ADD ends
	if err := d.WritePod(unfinished); err != nil {
		t.Fatal(err)
	}
	kerneltest.Until(t, func() bool { return c.annotation("unfinished") != "" })
	if text := c.annotation("later"); text != "" {
		t.Errorf("a pod with another UID has the annotation %s", text)
	}
}

// testPermissions checks with the agent's credentials which changes of pods the API refuses.
func testPermissions(t *testing.T, c *cluster) {
	c.pod("shop", "own", "n1", "default")
	c.pod("shop", "other", "n2", "default")
	patch := func(pod, body string) error {
		return c.agent.Patch(types.StrategicMergePatchType).AbsPath("/api/v1/namespaces/shop/pods", pod).Body([]byte(body)).Do(t.Context()).Error()
	}
	kerneltest.Until(t, func() bool { return patch("other", `{"metadata": {"annotations": {"x": "y"}}}`) != nil }) // the policy takes a moment
	for body, want := range map[string]string{
		`{"metadata": {"annotations": {"` + annotation + `": "[]"}}}`:           "",
		`{"metadata": {"annotations": {"` + annotation + `": "[{}]"}}}`:         "",
		`{"metadata": {"annotations": {"a": "c"}}}`:                             "writes only the annotation",
		`{"metadata": {"annotations": {"a": null}}}`:                            "writes only the annotation",
		`{"metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": "x"}}}`:   "writes only the annotation",
		`{"metadata": {"labels": {"l": "2"}}}`:                                  "writes only the annotation",
		`{"metadata": {"labels": null}}`:                                        "writes only the annotation",
		`{"metadata": {"finalizers": ["example.com/x"]}}`:                       "writes only the annotation",
		`{"spec": {"containers": [{"name": "c", "image": "other"}]}}`:           "writes only the annotation",
		`{"spec": {"activeDeadlineSeconds": 1}}`:                                "writes only the annotation",
		`{"metadata": {"annotations": {"` + annotation + `": "[]", "b": "c"}}}`: "writes only the annotation",
	} {
		err := patch("own", body)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
	if err := patch("other", `{"metadata": {"annotations": {"`+annotation+`": "[]"}}}`); err == nil || !strings.Contains(err.Error(), "the agent of n1 cannot write a pod of another node") {
		t.Errorf("a pod of another node: %v", err)
	}
	for path, err := range map[string]error{
		"get pods":    c.agent.Get().AbsPath("/api/v1/namespaces/shop/pods/own").Do(t.Context()).Error(),
		"list pods":   c.agent.Get().AbsPath("/api/v1/pods").Do(t.Context()).Error(),
		"delete pods": c.agent.Delete().AbsPath("/api/v1/namespaces/shop/pods/own").Do(t.Context()).Error(),
		"secrets":     c.agent.Get().AbsPath("/api/v1/secrets").Do(t.Context()).Error(),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want forbidden", path, err)
		}
	}
}

// testAway stops the API server. The files stay, and changes that the agent missed arrive after the restart.
func testAway(t *testing.T, c *cluster) {
	dir := newDir(t)
	d := podstate.Open(dir)
	c.define("stays", `{"type": "ptp"}`, "")
	m := c.manager(t, dir)
	wantConfig(t, d, "stays", `{"type": "ptp"}`)
	uid := c.pod("shop", "meanwhile", "n1", "default")
	c.Stop()
	if err := d.WritePod(attached("c1", "meanwhile", uid)); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(podstate.DefinitionArgs{Namespace: "shop", Name: "new"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Handlers()[podstate.OpDefinition](t.Context(), raw); cni.AsError(err).Code != cni.CodeTryAgainLater {
		t.Errorf("a question without an API server: %v", err)
	}
	wantConfig(t, d, "stays", `{"type": "ptp"}`)
	c.Restart()
	c.define("new", `{"type": "bridge"}`, "")
	wantConfig(t, d, "new", `{"type": "bridge"}`)
	wantConfig(t, d, "stays", `{"type": "ptp"}`)
	kerneltest.Until(t, func() bool { return c.annotation("meanwhile") != "" })
}
