package crash

import (
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/enforce/enforcetest"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// policyAgent starts an agent that enforces a policy for all containers.
func policyAgent(m *machine) string {
	m.T.Helper()
	dir := local.Open(filepath.Join(m.Dir, "lib"), filepath.Join(m.Dir, "run"))
	enforcetest.Start(m.T, dir, "policy: all\nfor: '*'\nin: []\n")
	state := podstate.Open(dir)
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
