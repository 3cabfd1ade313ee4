package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/internal/etcdtest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestPolicyReport publishes a problem that lasts, with its first text, until it ends.
func TestPolicyReport(t *testing.T) {
	t.Parallel()
	why := ""
	r := &policyReport{now: func() string { return why }}
	is := func(want string) {
		t.Helper()
		if got := r.problem(); got != want {
			t.Errorf("%q is published, want %q", got, want)
		}
	}
	is("")
	why = "first"
	is("")
	is("")
	r.since = r.since.Add(-unreadyFor)
	is("first")
	why = "second"
	is("first")
	why = ""
	is("")
	why = "third"
	is("")
	if r.since = r.since.Add(-unreadyFor + time.Minute); r.problem() != "" {
		t.Error("a problem is published too early")
	}
	if (&policyReport{}).problem() != "" {
		t.Error("an agent without policy has a problem")
	}
}

// TestPolicyProblemIsPublished has an agent publish a problem in its node's document, and remove it.
func TestPolicyProblemIsPublished(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	dir := t.TempDir()
	a, err := newAgent(Options{
		Config: &config.Config{Node: "a", Network: simulated()}, Store: c.Store(t), Lib: dir, Run: filepath.Join(dir, "r"), Log: quietLog(),
	}, &recorder{netip.MustParsePrefix("192.0.2.1/24")})
	if err != nil {
		t.Fatal(err)
	}
	var why atomic.Value
	why.Store("the kernel is away")
	a.publish.policy = policyReport{now: func() string { return why.Load().(string) }, since: time.Now().Add(-time.Hour)}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.run(ctx) }()
	defer func() { stop(); <-done }()
	published := func(want bool) {
		t.Helper()
		kerneltest.Eventually(t, func() error {
			r, err := c.Client().Get(ctx, "/fairlead/nodes/a")
			if err != nil {
				return err
			}
			if len(r.Kvs) != 1 {
				return errors.New("the node has no document")
			}
			text := string(r.Kvs[0].Value)
			if strings.Contains(text, `"policyProblem":"the kernel is away"`) != want {
				return fmt.Errorf("the problem is published: want %v: %s", want, text)
			}
			return nil
		})
	}
	published(true)
	why.Store("")
	published(false)
}
