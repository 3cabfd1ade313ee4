package crash

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/enforce"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// policyAgent starts an agent that enforces a policy for all containers.
func policyAgent(m *machine) string {
	m.T.Helper()
	policies := filepath.Join(m.Dir, "policies")
	must(m.T, os.Mkdir(policies, 0o755))
	must(m.T, os.WriteFile(filepath.Join(policies, "all.yaml"), []byte("policy: all\nfor: '*'\nin: []\n"), 0o644))
	dir := local.Open(filepath.Join(m.Dir, "lib"), filepath.Join(m.Dir, "run"))
	l, err := address.Listen(dir.Socket())
	must(m.T, err)
	state := podstate.Open(dir)
	e := enforce.New(enforce.Options{Directory: policies, Node: "here", Attachments: state, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	host := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
	done := make(chan struct{}, 2)
	go func() { _ = kerneltest.Inside(host, func() error { return e.Run(ctx) }); done <- struct{}{} }()
	go func() { _ = (&address.Server{Handlers: e.Handlers()}).Serve(ctx, l); done <- struct{}{} }()
	m.T.Cleanup(func() {
		cancel()
		for range cap(done) {
			<-done
		}
	})
	m.waitIdle = func() {
		kerneltest.Until(m.T, func() bool {
			out, err := exec.Command("nft", "list", "map", "inet", "fairlead-policy", "ingress4").Output()
			left, listErr := state.Endpoints()
			return err == nil && listErr == nil && (len(left) > 0 || !strings.Contains(string(out), "10.1.0.2"))
		})
	}
	m.waitIdle()
	return dir.Socket()
}
