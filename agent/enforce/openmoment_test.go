package enforce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/internal/kubetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// childEnforcer is the environment variable that makes the test's program an enforcer: a child as JSON.
const childEnforcer = "ENFORCE_TEST_CHILD"

// child is the input of a process that enforces policy in a network namespace.
type child struct{ Netns, API, Token string }

func TestMain(m *testing.M) {
	text := os.Getenv(childEnforcer)
	if text == "" {
		os.Exit(m.Run())
	}
	var c child
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		err = c.run()
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// run enforces policy until SIGTERM.
func (c child) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config := &rest.Config{Host: c.API, BearerToken: c.Token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	e := New(Options{Config: config, Node: "n1", Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	return kerneltest.Inside(c.Netns, func() error { return e.Run(ctx) })
}

// start starts a process.
func (c child) start(t *testing.T) *process {
	t.Helper()
	text, err := json.Marshal(c)
	must(t, err)
	p := &process{cmd: exec.Command(os.Args[0]), log: &kerneltest.Output{}}
	p.cmd.Env = append(os.Environ(), childEnforcer+"="+string(text))
	p.cmd.Stderr = p.log
	started := make(chan error)
	go func() { started <- p.cmd.Start() }() // on a thread that is not in the test's namespace: the API is outside
	must(t, <-started)
	t.Cleanup(p.kill)
	return p
}

// process is an enforcer in a process of its own.
type process struct {
	cmd *exec.Cmd
	log *kerneltest.Output
}

func (p *process) kill() { _, _ = p.cmd.Process.Kill(), p.cmd.Wait() }

func (p *process) terminate() { _, _ = p.cmd.Process.Signal(syscall.SIGTERM), p.cmd.Wait() }

// probe sends one packet of UDP in each millisecond, and counts those that arrive.
type probe struct {
	sent, received int
	end            func()
}

func (p *cutPod) probe(to *cutPod, port uint16) *probe {
	t := p.n.t
	t.Helper()
	var from, at *net.UDPConn
	must(t, kerneltest.Inside(p.netns, func() (err error) {
		from, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to.addrs[0], port)))
		return err
	}))
	must(t, kerneltest.Inside(to.netns, func() (err error) {
		at, err = net.ListenUDP("udp", &net.UDPAddr{Port: int(port)})
		return err
	}))
	must(t, at.SetReadBuffer(8<<20))
	x := &probe{}
	var all sync.WaitGroup
	stop := make(chan struct{})
	all.Go(func() {
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-stop:
				return
			case <-tick.C:
				if _, err := from.Write([]byte("x")); err == nil {
					x.sent++
				}
			}
		}
	})
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		for {
			if _, err := at.Read(make([]byte, 1)); err != nil {
				return
			}
			x.received++
		}
	}()
	x.end = sync.OnceFunc(func() {
		close(stop)
		all.Wait()
		time.Sleep(kerneltest.Slow(100 * time.Millisecond)) // what has been sent is read
		from.Close()
		at.Close()
		<-reading
	})
	t.Cleanup(x.end)
	return x
}

// TestNoOpenMoment starts, stops, kills and replaces the enforcer's process again and again while pods and policies change.
// Meanwhile packets that policy always forbids, and packets that it always allows, cross the node, one in each millisecond,
// and a connection that was cut sends. None of the first and of the last passes, and all of the second do.
func TestNoOpenMoment(t *testing.T) {
	kerneltest.OptIn(t, "FAIRLEAD_KUBERNETES")
	runtime.LockOSThread() // the server ends with the thread that started it
	api := kubetest.Start(t)
	n := newCutNode(t)
	n.stop() // the processes do its work
	a, b, other := n.pod("a", 1), n.pod("b", 2), n.pod("c", 3)
	c := child{fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), syscall.Gettid()), api.Config.Host, api.Config.BearerToken}
	load := &load{t: t, api: api}
	load.create()
	cut := converse(other, b, netip.AddrPortFrom(b.addrs[1], 53), true)
	load.policy("closed", "{podSelector: {matchLabels: {app: b}}, ingress: [{from: [{podSelector: {matchLabels: {app: a}}}]}]}")
	p := c.start(t)
	n.log = p.log
	n.cuts(1)
	cut.silent()
	allowed, forbidden := a.probe(b, 80), other.probe(b, 81)
	end := load.run()
	for i := range 20 {
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Millisecond)
		switch i % 4 {
		case 0:
			p.kill()
			p = c.start(t)
		case 1:
			p.terminate()
			p = c.start(t)
		case 2: // both at once
			next := c.start(t)
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Millisecond)
			p.kill()
			p = next
		case 3: // none for some time
			p.kill()
			time.Sleep(500 * time.Millisecond)
			p = c.start(t)
		}
	}
	changes := end()
	allowed.end()
	forbidden.end()
	cut.silent()
	t.Logf("%d changes, %d allowed and %d forbidden packets", changes, allowed.sent, forbidden.sent)
	if allowed.received != allowed.sent || allowed.sent < 1000 {
		t.Errorf("of %d allowed packets, %d passed\n%s", allowed.sent, allowed.received, p.log)
	}
	if forbidden.received != 0 || forbidden.sent < 1000 {
		t.Errorf("of %d forbidden packets, %d passed\n%s", forbidden.sent, forbidden.received, p.log)
	}
	// The last process works: policy that goes lets everything pass.
	must(t, load.delete(networkPolicies+"/closed"))
	cut.arrives()
}

const (
	pods            = "/api/v1/namespaces/x/pods"
	networkPolicies = "/apis/networking.k8s.io/v1/namespaces/x/networkpolicies"
)

// load changes pods and policies in the API.
type load struct {
	t   *testing.T
	api *kubetest.Server
}

// create creates the pods of the test.
func (l *load) create() {
	l.t.Helper()
	l.api.Node("n1", []string{"192.0.2.1"})
	l.api.Node("n2", []string{"192.0.2.2"})
	must(l.t, l.api.Create("/api/v1/namespaces", `{apiVersion: v1, kind: Namespace, metadata: {name: x}}`))
	must(l.t, l.api.Create("/api/v1/namespaces/x/serviceaccounts", `{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}`))
	for i, app := range []string{"a", "b", "c"} {
		must(l.t, l.pod("n1", app, app, fmt.Sprint("10.0.0.", i+1), fmt.Sprint("fd00::", i+1)))
	}
}

// pod creates a pod with addresses.
func (l *load) pod(node, name, app, addr4, addr6 string) error {
	err := l.api.Create(pods, `{apiVersion: v1, kind: Pod, metadata: {name: `+name+`, labels: {app: `+app+`}}, spec: {nodeName: `+node+`, containers: [{name: c, image: i}]}}`)
	if err != nil {
		return err
	}
	status := fmt.Sprintf(`{"status": {"phase": "Running", "podIP": %q, "podIPs": [{"ip": %q}, {"ip": %q}]}}`, addr4, addr4, addr6)
	return l.api.Client().Patch("application/strategic-merge-patch+json").AbsPath(pods, name, "status").Body([]byte(status)).Do(context.Background()).Error()
}

func (l *load) policy(name, spec string) {
	l.t.Helper()
	must(l.t, l.createPolicy(name, spec))
}

func (l *load) createPolicy(name, spec string) error {
	return l.api.Create(networkPolicies, `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: `+name+`}, spec: `+spec+`}`)
}

func (l *load) delete(path string) error {
	return l.api.Client().Delete().AbsPath(path).Param("gracePeriodSeconds", "0").Do(context.Background()).Error()
}

// run changes what does not matter to the test's packets: pods elsewhere come and go, also ones of the allowed application,
// and other policies select the test's pods. end returns the number of changes.
func (l *load) run() (end func() int) {
	stop, ended := make(chan struct{}), make(chan int)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				ended <- i
				return
			case <-time.After(20 * time.Millisecond):
			}
			name := fmt.Sprint("l", i%7)
			err := errors.Join(
				l.pod("n2", name, []string{"a", "b", "c"}[i%3], fmt.Sprint("10.0.1.", i%200+1), fmt.Sprint("fd01::", i%200+1)),
				l.createPolicy(name, fmt.Sprintf(`{podSelector: {}, policyTypes: [%s], egress: [{}], ingress: [{from: [{podSelector: {matchLabels: {app: a}}}]}, {from: [{podSelector: {matchLabels: {app: x%d}}}]}]}`,
					[]string{"Ingress", "Ingress, Egress"}[i%2], i)),
				l.delete(pods+"/"+name), l.delete(networkPolicies+"/"+name))
			if err != nil {
				l.t.Error(err)
			}
		}
	}()
	end = sync.OnceValue(func() int { close(stop); return <-ended })
	l.t.Cleanup(func() { end() })
	return end
}
