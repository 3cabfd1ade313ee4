package kubetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// Kubeconfig writes a kubeconfig of an administrator and returns its path. Its context is "test".
func (s *Server) Kubeconfig() string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "kubeconfig")
	write(s.t, path, fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: %s}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
`, s.Config.Host, token))
	return path
}

// Controllers starts kube-controller-manager with some of its controllers, such as "daemonset-controller".
func (s *Server) Controllers(names ...string) {
	s.t.Helper()
	kubeconfig := s.Kubeconfig()
	file := filepath.Join(s.t.TempDir(), "log")
	log, err := os.Create(file)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(Program(s.t, "cmd/kube-controller-manager"), "--kubeconfig="+kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--controllers="+strings.Join(names, ","))
	cmd.Stdout, cmd.Stderr = log, log
	child, err := kerneltest.StartChild(cmd)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		child.Kill()
		if s.t.Failed() {
			raw, _ := os.ReadFile(file)
			s.t.Logf("the end of the log of kube-controller-manager:\n%s", raw[max(0, len(raw)-4000):])
		}
	})
}
