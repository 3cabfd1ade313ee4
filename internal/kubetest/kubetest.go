// Package kubetest gives tests a real Kubernetes API server with an etcd of its own. Both end with the test. The server is
// built from source once, which takes about ten minutes on two processors.
package kubetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/internal/built"
	"github.com/fairlead/fairlead/internal/etcdtest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// Version is the version of Kubernetes, which ./kubernetes/go.mod pins.
const Version = "1.37.2"

// Server is a running API server.
type Server struct {
	Config *rest.Config // of an administrator
	Etcd   *etcdtest.Member
	t      testing.TB
	argv   []string
	log    string
	cmd    *kerneltest.Child
}

// Program builds a program of Kubernetes, such as "cmd/kubelet", and returns its path.
func Program(t testing.TB, pkg string) string {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	return Build(t, filepath.Join(filepath.Dir(here), "kubernetes"), Version, pkg)
}

// Build is Program for the version that a directory's go.mod pins.
func Build(t testing.TB, dir, version, pkg string) string {
	t.Helper()
	const variable = "k8s.io/component-base/version.git"
	number := strings.Split(version, ".")
	flags := "-s -w -X " + variable + "Version=v" + version + " -X " + variable + "Major=" + number[0] + " -X " + variable + "Minor=" + number[1]
	path, err := built.Program("kubernetes-"+version, filepath.Base(pkg), func(temp string) *exec.Cmd {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags="+flags, "-o", temp, "k8s.io/kubernetes/"+pkg)
		cmd.Dir = dir
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod")
		return cmd
	})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

const token = "fairlead-kubetest"

// Start starts an API server and waits until it is ready.
func Start(t testing.TB) *Server {
	t.Helper()
	path := Program(t, "cmd/kube-apiserver")
	etcd := etcdtest.Start(t, etcdtest.Options{Program: etcdtest.Current(t)})
	dir := t.TempDir()
	write(t, dir+"/tokens.csv", token+",admin,admin,system:masters\n")
	write(t, dir+"/sa.key", key(t))
	address := kerneltest.FreePort(t, "127.0.0.1").String()
	_, port, _ := net.SplitHostPort(address)
	s := &Server{
		t: t, Etcd: etcd.Members[0], log: dir + "/log",
		Config: &rest.Config{Host: "https://" + address, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
		argv: []string{
			path, "--etcd-servers=" + strings.Join(etcd.Endpoints(), ","), "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + port,
			"--cert-dir=" + dir, "--service-cluster-ip-range=10.96.0.0/16", "--token-auth-file=" + dir + "/tokens.csv", "--authorization-mode=RBAC",
			"--endpoint-reconciler-type=none", "--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + dir + "/sa.key", "--service-account-signing-key-file=" + dir + "/sa.key",
		},
	}
	s.Restart()
	return s
}

// Stop ends the server, as a machine that fails does.
func (s *Server) Stop() {
	s.t.Helper()
	if s.cmd == nil {
		return
	}
	s.cmd.Kill()
	s.cmd = nil
}

// Restart starts the server and waits until it is ready.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(s.argv[0], s.argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	if s.cmd, err = kerneltest.StartChild(cmd); err != nil {
		s.cmd = nil
		s.t.Fatal(err)
	}
	ready := false
	s.t.Cleanup(func() {
		s.Stop()
		if !ready {
			raw, _ := os.ReadFile(s.log)
			s.t.Logf("the end of the API server's log:\n%s", raw[max(0, len(raw)-4000):])
		}
	})
	c := s.Client()
	kerneltest.Within(s.t, time.Minute, func() error { return c.Get().AbsPath("/readyz").Do(context.Background()).Error() })
	ready = true
}

// Client returns a client for any path.
func (s *Server) Client() *rest.RESTClient {
	s.t.Helper()
	config := rest.CopyConfig(s.Config)
	config.GroupVersion = &schema.GroupVersion{}
	scheme := kruntime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // for the errors
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.QPS = -1
	c, err := rest.RESTClientFor(config)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// Create creates an object at a path from its YAML.
func (s *Server) Create(path, text string) error {
	body, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return err
	}
	err = s.Client().Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(body).Do(context.Background()).Error()
	return err
}

const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// Apply creates the CustomResourceDefinitions in a file and waits until the API serves them.
func (s *Server) Apply(file string) {
	s.t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	c := s.Client()
	for doc := range bytes.SplitSeq(raw, []byte("\n---\n")) {
		if err := s.Create(definitions, string(doc)); err != nil && !apierrors.IsAlreadyExists(err) {
			s.t.Fatal(err)
		}
		var crd struct {
			Spec struct {
				Group    string
				Names    struct{ Plural string }
				Versions []struct{ Name string }
			}
		}
		if err := yaml.Unmarshal(doc, &crd); err != nil {
			s.t.Fatal(err)
		}
		kerneltest.Within(s.t, time.Minute, func() error {
			return c.Get().AbsPath("/apis/" + crd.Spec.Group + "/" + crd.Spec.Versions[0].Name + "/" + crd.Spec.Names.Plural).Do(context.Background()).Error()
		})
	}
}

// Node creates a Node with addresses and pod ranges.
func (s *Server) Node(name string, addresses []string, podCIDRs ...string) {
	s.t.Helper()
	node := map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name}}
	if len(podCIDRs) > 0 {
		node["spec"] = map[string]any{"podCIDR": podCIDRs[0], "podCIDRs": podCIDRs}
	}
	body, err := json.Marshal(node)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.Create("/api/v1/nodes", string(body)); err != nil {
		s.t.Fatal(err)
	}
	s.NodeAddresses(name, addresses...)
}

// NodeBoot sets the boot ID in a Node's status, as the kubelet does.
func (s *Server) NodeBoot(name, id string) {
	s.t.Helper()
	s.patchStatus(name, map[string]any{"nodeInfo": map[string]string{"bootID": id}})
}

// NodeAddresses sets the addresses in a Node's status, as the kubelet does.
func (s *Server) NodeAddresses(name string, addresses ...string) {
	s.t.Helper()
	var list []map[string]string
	for _, a := range addresses {
		list = append(list, map[string]string{"type": "InternalIP", "address": a})
	}
	s.patchStatus(name, map[string]any{"addresses": list})
}

func (s *Server) patchStatus(name string, status any) {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.Client().Patch("application/merge-patch+json").AbsPath("/api/v1/nodes", name, "status").Body(body).Do(context.Background()).Error(); err != nil {
		s.t.Fatal(err)
	}
}

// Label sets a label of a Node.
func (s *Server) Label(node, key, value string) {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{key: value}}})
	if err == nil {
		err = s.Client().Patch("application/merge-patch+json").AbsPath("/api/v1/nodes", node).Body(body).Do(context.Background()).Error()
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// Delete deletes an object.
func (s *Server) Delete(path ...string) {
	s.t.Helper()
	if err := s.Client().Delete().AbsPath(path...).Do(context.Background()).Error(); err != nil {
		s.t.Fatal(err)
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// key returns a new RSA key for service accounts.
func key(t testing.TB) string {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k)}))
}
