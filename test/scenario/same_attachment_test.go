package scenario

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestConcurrentAddsOfOneAttachment runs several ADDs of one attachment concurrently. One succeeds; the others report
// the reason and change nothing. The address stays allocated, exactly once.
func TestConcurrentAddsOfOneAttachment(t *testing.T) {
	for _, mode := range []string{"", "fused"} {
		t.Run("mode "+mode, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			file := m.Dir + "/net.conflist"
			conf := `{"cniVersion": "1.0.0", "name": "n", "plugins": [
			  {"type": "bridge", "isGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "dataDir": "` + m.Dir + `/ipam", "subnet": "10.1.0.0/24"}},
			  {"type": "bandwidth", "ingressRate": 1000000}, {"type": "firewall"}, {"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}}]}`
			if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
				t.Fatal(err)
			}
			for round := range 12 {
				m.addConcurrently(file, mode, fmt.Sprintf("c%d", round))
			}
		})
	}
}

// TestAddDuringListOfAnother begins an ADD while a later plugin of another ADD's list works. The first plugin of the
// second ADD must not take that list for an interrupted one.
func TestAddDuringListOfAnother(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	file, netns := m.Dir+"/net.conflist", kerneltest.Netns(t)
	conf := `{"cniVersion": "1.0.0", "name": "n", "plugins": [
	  {"type": "bridge", "ipam": {"type": "host-local", "dataDir": "` + m.Dir + `/ipam", "subnet": "10.1.0.0/24"}}]}`
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, out := m.command("add", file, "", "c", netns)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	records := attach.Open(m.Dir + "/run")
	r, err := records.Read(kernel.Owner{Network: "n", ContainerID: "c", IfName: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	r.Parts = append(r.Parts, attach.Part{Plugin: "bandwidth", PID: os.Getpid()})
	if err := records.Write(r); err != nil { // and locks it, like the plugin that works
		t.Fatal(err)
	}
	dump := func() string {
		return kerneltest.Mask(kerneltest.Dump(t, netns), kerneltest.IPv6State, kerneltest.Carrier)
	}
	before := dump()
	cmd, out = m.command("add", file, "", "c", netns)
	if err := cmd.Run(); err == nil || !strings.Contains(out.String(), "is in progress") {
		t.Errorf("the second ADD: %v: %s", err, out)
	}
	if after := dump(); after != before {
		t.Errorf("the second ADD changed the container:\n%s", kerneltest.Diff(before, after))
	}
	r.Unlock() // as if the plugin was killed: the next ADD undoes its work and succeeds
	cmd, out = m.command("add", file, "", "c", netns)
	if err := cmd.Run(); err != nil {
		t.Errorf("ADD after an interrupted one: %v: %s", err, out)
	}
}

// command returns a command of the script "cni", and its output.
func (m *machine) command(verb, file, mode, id, netns string) (*exec.Cmd, *bytes.Buffer) {
	bin := programs
	cmd, out := exec.Command(bin+"/cni", verb, file, "NS"), &bytes.Buffer{}
	cmd.Env = m.Env("CNI_PATH="+bin, "NS="+netns, "LIST_MODE="+mode, "CONTAINER="+id)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

func (m *machine) addConcurrently(file, mode, id string) {
	m.T.Helper()
	netns := kerneltest.Netns(m.T)
	command := func(verb string) (*exec.Cmd, *bytes.Buffer) { return m.command(verb, file, mode, id, netns) }
	var adds [4]*exec.Cmd
	var outputs [4]*bytes.Buffer
	for i := range adds {
		adds[i], outputs[i] = command("add")
		if err := adds[i].Start(); err != nil {
			m.T.Fatal(err)
		}
	}
	winner := ""
	for i, cmd := range adds {
		switch err := cmd.Wait(); {
		case err == nil && winner != "":
			m.T.Errorf("%s: a second ADD succeeded: %s", id, outputs[i])
		case err == nil:
			winner = outputs[i].String()
		case !strings.Contains(outputs[i].String(), "is in progress") && !strings.Contains(outputs[i].String(), "is already attached"):
			m.T.Errorf("%s: %s", id, outputs[i])
		}
	}
	if winner == "" {
		m.T.Fatalf("%s: no ADD succeeded: %s", id, outputs)
	}
	allocated, _ := filepath.Glob(m.Dir + "/ipam/n/10.*") // the pattern is well formed
	if len(allocated) != 1 || !strings.Contains(winner, filepath.Base(allocated[0])+"/24") {
		m.T.Errorf("%s: allocated are %v, and ADD returned %s", id, allocated, winner)
	}
	for _, verb := range []string{"check", "del"} {
		if cmd, out := command(verb); cmd.Run() != nil {
			m.T.Errorf("%s %s: %s", verb, id, out)
		}
	}
	if left, _ := filepath.Glob(m.Dir + "/run/attach/*/*"); len(left) > 0 {
		m.T.Errorf("%s: records remain: %v", id, left)
	}
}
