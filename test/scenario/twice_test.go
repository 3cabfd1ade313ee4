package scenario

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestSameAttachmentAtOnce runs several ADDs of one attachment at once. One succeeds; the others report the reason and
// change nothing. The address stays allocated, exactly once.
func TestSameAttachmentAtOnce(t *testing.T) {
	for _, how := range []string{"", "fused"} {
		t.Run("as "+how, func(t *testing.T) {
			t.Parallel()
			kerneltest.Host(t)
			m := newMachine(t)
			file := m.dir + "/net.conflist"
			conf := `{"cniVersion": "1.0.0", "name": "n", "plugins": [
			  {"type": "bridge", "isGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "dataDir": "` + m.dir + `/ipam", "subnet": "10.1.0.0/24"}},
			  {"type": "bandwidth", "ingressRate": 1000000}]}`
			if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
				t.Fatal(err)
			}
			for round := range 12 {
				m.sameAtOnce(file, how, fmt.Sprintf("c%d", round))
			}
		})
	}
}

func (m *machine) sameAtOnce(file, how, id string) {
	m.t.Helper()
	netns, bin := kerneltest.Netns(m.t), programs(m.t)
	command := func(verb string) (*exec.Cmd, *bytes.Buffer) {
		cmd, out := exec.Command(bin+"/cni", verb, file, "NS"), &bytes.Buffer{}
		cmd.Env = append(os.Environ(), "CNI_PATH="+bin, "FAIRLEAD_RUN="+m.dir+"/run", "WORK="+m.dir, "NS="+netns, "TOGETHER="+how, "CONTAINER="+id)
		cmd.Stdout, cmd.Stderr = out, out
		return cmd, out
	}
	var adds [4]*exec.Cmd
	var said [4]*bytes.Buffer
	for i := range adds {
		adds[i], said[i] = command("add")
		if err := adds[i].Start(); err != nil {
			m.t.Fatal(err)
		}
	}
	winner := ""
	for i, cmd := range adds {
		switch err := cmd.Wait(); {
		case err == nil && winner != "":
			m.t.Errorf("%s: a second ADD succeeded: %s", id, said[i])
		case err == nil:
			winner = said[i].String()
		case !strings.Contains(said[i].String(), "is in progress") && !strings.Contains(said[i].String(), "is already attached"):
			m.t.Errorf("%s: %s", id, said[i])
		}
	}
	if winner == "" {
		m.t.Fatalf("%s: none succeeded: %s", id, said)
	}
	held, _ := filepath.Glob(m.dir + "/ipam/n/10.*") // the pattern is well formed
	if len(held) != 1 || !strings.Contains(winner, filepath.Base(held[0])+"/24") {
		m.t.Errorf("%s: held are %v, and ADD said %s", id, held, winner)
	}
	for _, verb := range []string{"check", "del"} {
		if cmd, out := command(verb); cmd.Run() != nil {
			m.t.Errorf("%s %s: %s", verb, id, out)
		}
	}
	if left, _ := filepath.Glob(m.dir + "/run/attach/*/*"); len(left) > 0 {
		m.t.Errorf("%s: left are %v", id, left)
	}
}
