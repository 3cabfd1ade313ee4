package agent

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/reconcile"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins/chain"
	"github.com/fairlead/fairlead/repair"
	"github.com/fairlead/fairlead/skel"
)

// TestLostRules removes the rules of an attachment, as a reload of a firewall does: while the agent runs, while it does not,
// and while another process has the attachment locked. The agent restores them. The attachment keeps the host port that it
// took from a container which ended without a DEL.
func TestLostRules(t *testing.T) {
	t.Setenv(attach.RootVariable, t.TempDir())
	host, container, log := kerneltest.Netns(t), kerneltest.Netns(t), &kerneltest.Output{}
	ended := kerneltest.Netns(t)
	publishPort(t, host, ended, "a0")
	kerneltest.Gone(t, ended) // without a DEL
	publishPort(t, host, container, "c1")
	rules := func() string { return kerneltest.In(t, host, "nft", "list", "ruleset") }
	before := rules()
	if !strings.Contains(before, "8080") {
		t.Fatalf("the rules of the attachment:\n%s", before)
	}
	k := newRuleKeeper(attach.Open(""), slog.New(slog.NewTextHandler(log, nil)))
	flush := func() { kerneltest.In(t, host, "nft", "flush", "ruleset") }
	logged := 0
	restored := func(when string) {
		t.Helper()
		kerneltest.Within(t, time.Second, func() error {
			if now := rules(); now != before {
				return fmt.Errorf("%s: %s", when, kerneltest.Diff(before, now))
			}
			n := strings.Count(log.String(), "restored rules")
			if n == logged {
				return fmt.Errorf("%s: the log does not say that rules were restored: %s", when, log)
			}
			logged = n
			return nil
		})
	}
	flush() // before the agent starts
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- kerneltest.Inside(host, func() error {
			m, err := reconcile.NewMonitor()
			if err != nil {
				return err
			}
			go func() { _ = m.Run(ctx, func(ev []reconcile.Event) { k.notice(kernelEvents{"", ev}) }) }()
			k.run(ctx)
			return nil
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	restored("a loss before the start")
	flush()
	restored("a loss")
	_, release, err := k.dir.Hold(kernel.Owner{Network: "pods", ContainerID: "c1", IfName: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	flush()
	time.Sleep(100 * time.Millisecond)
	if rules() == before {
		t.Error("the agent changed a locked attachment")
	}
	release()
	time.Sleep(2 * ruleRetry)
	restored("a loss while the attachment is locked")
	if text := log.String(); strings.Contains(text, "ERROR") {
		t.Error(text)
	}
}

// TestRulesOfDeadContainer checks that nothing is restored for a container whose host end is gone.
func TestRulesOfDeadContainer(t *testing.T) {
	t.Setenv(attach.RootVariable, t.TempDir())
	host, container := kerneltest.Netns(t), kerneltest.Netns(t)
	publishPort(t, host, container, "c1")
	dir := attach.Open("")
	rec, err := dir.Read(kernel.Owner{Network: "pods", ContainerID: "c1", IfName: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	list, err := rec.Objects()
	if err != nil {
		t.Fatal(err)
	}
	veth := &kernel.Veth{Name: "veth0", PeerSide: kernel.Host, PeerName: "peer0", OwnerTag: "tag"}
	rec.Parts[0].Objects = attach.LazyOf(append(list, veth))
	if err := dir.Write(rec); err != nil {
		t.Fatal(err)
	}
	rec.Unlock()
	for _, step := range []struct {
		command  string
		restored bool
	}{
		{"true", false},
		{"ip link add veth0 type veth peer name peer0", false}, // somebody else's
		{"ip link set veth0 alias tag", true},
	} {
		kerneltest.In(t, host, "sh", "-c", "nft flush ruleset; "+step.command)
		err := kerneltest.Inside(host, func() error {
			found, err := repair.Rules(dir, rec)
			if restored := len(found) > 0; restored != step.restored {
				t.Errorf("%s: restored %v", step.command, found)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", step.command, err)
		}
	}
}

// publishPort adds a container with a host port.
func publishPort(t *testing.T, host, container, id string) {
	t.Helper()
	env := map[string]string{"CNI_COMMAND": "ADD", "CNI_CONTAINERID": id, "CNI_IFNAME": "eth0", "CNI_NETNS": container, "CNI_PATH": "/"}
	const conf = `{"cniVersion": "1.1.0", "name": "pods", "type": "portmap", "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]},
		"prevResult": {"interfaces": [{"name": "eth0", "sandbox": "NETNS"}], "ips": [{"address": "ADDRESS/24", "interface": 0}]}}`
	address := map[string]string{"a0": "10.0.0.9", "c1": "10.0.0.2"}[id]
	err := kerneltest.Inside(host, func() error {
		_, err := skel.Serve(t.Context(), chain.Portmap().Skel(plugin.Env{}), func(name string) string { return env[name] }, []byte(strings.NewReplacer("NETNS", container, "ADDRESS", address).Replace(conf)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
