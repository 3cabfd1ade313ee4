package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/kubetest"
	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/kernel/netns"
)

// apiProxy is between the programs of one host and the API server. It counts writes, and disturbs them.
type apiProxy struct {
	Kubeconfig string // of the proxy, for programs on the host

	api   *url.URL
	token string
	out   *http.Transport
	on    func(do func() error) error // runs a function in the host's network namespace

	mu      sync.Mutex
	server  *http.Server
	address string   // of the server
	writes  []string // the writes so far: method and resource
	did     int      // those that the API executed
	killAt  int      // the number of the write at which kill is called; 0: none
	after   bool     // call kill after the API executed the write, and not before
	kill    func()
	faults  bool // disturb requests at random
	counts  map[string]int
}

// newProxy starts a proxy on a host.
func newProxy(t *testing.T, server *kubetest.Server, h *lab.Host) *apiProxy {
	t.Helper()
	to, err := url.Parse(server.Config.Host)
	must(t, err)
	ns, err := netns.Open(h.Netns())
	must(t, err)
	t.Cleanup(func() { ns.Close() })
	p := &apiProxy{
		api: to, token: server.Config.BearerToken, on: ns.Do, counts: map[string]int{},
		out:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 16},
		address: "127.0.0.1:0",
	}
	p.start(t)
	t.Cleanup(p.stop)
	p.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(p.Kubeconfig, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "x",
		"clusters": [{"name": "x", "cluster": {"server": "http://%s"}}], "contexts": [{"name": "x", "context": {"cluster": "x"}}]}`, p.address), 0o600))
	return p
}

// start makes the API reachable.
func (p *apiProxy) start(t *testing.T) {
	t.Helper()
	var l net.Listener
	must(t, p.on(func() (err error) { l, err = net.Listen("tcp", p.address); return err }))
	server := &http.Server{Handler: p}
	p.mu.Lock()
	p.server, p.address = server, l.Addr().String()
	p.mu.Unlock()
	go func() { _ = server.Serve(l) }()
}

// stop makes the API unreachable, and closes all connections.
func (p *apiProxy) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.server.Close()
}

// away makes the API unreachable while do runs.
func (p *apiProxy) away(t *testing.T, do func()) {
	t.Helper()
	p.stop()
	do()
	p.start(t)
}

// aim lets the proxy call kill at a write.
func (p *apiProxy) aim(write int, after bool, kill func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killAt, p.after, p.kill = write, after, kill
}

// disturb starts or ends faults at random.
func (p *apiProxy) disturb(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = on
}

// resourceOf returns the resource of a path, with its subresource.
func resourceOf(path string) string {
	words := strings.Split(strings.Trim(path, "/"), "/")
	for i, w := range words {
		if slices.Contains([]string{"nodes", "networks", "ipblocks", "ipaddresses", "fixedaddresses", "leases"}, w) {
			if len(words) > i+2 {
				return w + "/" + words[i+2]
			}
			return w
		}
	}
	return path
}

func (p *apiProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	faults := p.faults
	p.mu.Unlock()
	fault := ""
	if faults {
		fault = pick(r.Method == http.MethodGet)
		p.mu.Lock()
		p.counts[fault]++
		p.mu.Unlock()
	}
	switch fault {
	case "delay":
		time.Sleep(rand.N(1500 * time.Millisecond))
	case "cut before":
		panic(http.ErrAbortHandler)
	case "409", "410", "429", "500", "503":
		refuse(w, fault)
		return
	}
	if r.Method == http.MethodGet {
		p.read(w, r, fault == "cut while it answers")
		return
	}
	p.write(w, r, fault)
}

// pick chooses a fault, or "" for none.
func pick(read bool) string {
	list := []string{"delay", "cut before", "429", "500", "503", "409", "cut after", "500 after"}
	if read {
		list = []string{"delay", "cut before", "429", "500", "503", "410", "cut while it answers", "cut while it answers"}
	}
	return slices.Concat(list, make([]string, 2*len(list)))[rand.N(3*len(list))]
}

// refuse answers as the API server does, without executing the request.
func refuse(w http.ResponseWriter, code string) {
	reason := map[string]string{"409": "Conflict", "410": "Expired", "429": "TooManyRequests", "500": "InternalError", "503": "ServiceUnavailable"}[code]
	w.Header().Set("Content-Type", "application/json")
	number := 0
	_, _ = fmt.Sscan(code, &number)
	w.WriteHeader(number)
	fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "a fault of the test", "reason": %q, "code": %s}`, reason, code)
}

// read forwards a read or a watch. A cut ends it after a while: a watch ends in the middle.
func (p *apiProxy) read(w http.ResponseWriter, r *http.Request, cut bool) {
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	if cut {
		time.AfterFunc(rand.N(3*time.Second), stop)
	}
	proxy := &httputil.ReverseProxy{
		Transport: p.out, FlushInterval: -1,
		Rewrite: func(x *httputil.ProxyRequest) {
			x.SetURL(p.api)
			x.Out.Header.Set("Authorization", "Bearer "+p.token)
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

// write forwards a write, and kills the agent before or after the API executes it if this is the write.
func (p *apiProxy) write(w http.ResponseWriter, r *http.Request, fault string) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	p.mu.Lock()
	p.writes = append(p.writes, r.Method+" "+resourceOf(r.URL.Path))
	hit, after, kill := len(p.writes) == p.killAt, p.after, p.kill
	p.mu.Unlock()
	if hit && !after {
		kill()
		panic(http.ErrAbortHandler)
	}
	answer, text, err := p.forward(r, body)
	if hit {
		kill()
	}
	if hit || err != nil || fault == "cut after" {
		panic(http.ErrAbortHandler)
	}
	if fault == "500 after" {
		refuse(w, "500")
		return
	}
	w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
	w.WriteHeader(answer.StatusCode)
	_, _ = w.Write(text)
}

// forward sends a write to the API, also if its sender has ended by now.
func (p *apiProxy) forward(r *http.Request, body []byte) (*http.Response, []byte, error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(r.Context()), 10*time.Second)
	defer stop()
	to := *r.URL
	to.Scheme, to.Host = p.api.Scheme, p.api.Host
	out, err := http.NewRequestWithContext(ctx, r.Method, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	out.Header = r.Header.Clone()
	out.Header.Del("Accept-Encoding")
	out.Header.Set("Authorization", "Bearer "+p.token)
	answer, err := p.out.RoundTrip(out)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode < 300 {
		p.mu.Lock()
		p.did++
		p.mu.Unlock()
	}
	return answer, text, err
}

// executed returns the number of writes that the API executed.
func (p *apiProxy) executed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.did
}
