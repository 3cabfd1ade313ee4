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
	"github.com/fairlead/fairlead/skel"
)

// TestLostRules removes the rules of an attachment, as a reload of a firewall does: while the agent runs, while it does not,
// and while another process has the attachment locked. The agent restores them.
func TestLostRules(t *testing.T) {
	t.Setenv(attach.RootVariable, t.TempDir())
	host, container, log := kerneltest.Netns(t), kerneltest.Netns(t), &kerneltest.Output{}
	publishPort(t, host, container)
	rules := func() string { return kerneltest.In(t, host, "nft", "list", "ruleset") }
	before := rules()
	if !strings.Contains(before, "8080") {
		t.Fatalf("the rules of the attachment:\n%s", before)
	}
	k := newRuleKeeper(attach.Open(""), slog.New(slog.NewTextHandler(log, nil)))
	flush := func() { kerneltest.In(t, host, "nft", "flush", "ruleset") }
	restored := func(when string, times int) {
		t.Helper()
		kerneltest.Within(t, time.Second, func() error {
			if now := rules(); now != before {
				return fmt.Errorf("%s: %s", when, kerneltest.Diff(before, now))
			}
			if n := strings.Count(log.String(), "restored rules"); n != times {
				return fmt.Errorf("%s: the log says %d times that rules were restored, want %d: %s", when, n, times, log)
			}
			return nil
		})
	}
	flush() // before the agent starts
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- kerneltest.Inside(host, func() error {
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
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	restored("a loss before the start", 1)
	flush()
	restored("a loss", 2)
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
	restored("a loss while the attachment is locked", 3)
	if text := log.String(); strings.Contains(text, "ERROR") {
		t.Error(text)
	}
}

// publishPort adds a container with a host port.
func publishPort(t *testing.T, host, container string) {
	t.Helper()
	env := map[string]string{"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_IFNAME": "eth0", "CNI_NETNS": container, "CNI_PATH": "/"}
	const conf = `{"cniVersion": "1.1.0", "name": "pods", "type": "portmap", "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]},
		"prevResult": {"interfaces": [{"name": "eth0", "sandbox": "NETNS"}], "ips": [{"address": "10.0.0.2/24", "interface": 0}]}}`
	err := kerneltest.Inside(host, func() error {
		_, err := skel.Serve(t.Context(), chain.Portmap().Skel(plugin.Env{}), func(name string) string { return env[name] }, []byte(strings.ReplaceAll(conf, "NETNS", container)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
