package podnetworks

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/agent/store/kube"
	"github.com/fairlead/fairlead/internal/kubetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestShortWatches checks that watches that the API ends at once are not repeated at once.
func TestShortWatches(t *testing.T) {
	t.Parallel()
	url, watches := kubetest.EndWatches(t)
	client, err := kube.Client(kube.Options{Config: &rest.Config{Host: url}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	NewManager(Options{Client: client, Dir: podstate.Open(local.Open(t.TempDir(), t.TempDir())), Log: slog.New(slog.DiscardHandler)}).follow(ctx)
	if n := watches.Load(); n != 1 {
		t.Errorf("%d watches in the first second, want 1", n)
	}
}

// TestWatchesThatBreak checks that an agent soon repeats a watch that lasted and then ended by an error, however often that
// happens. Until then, the node does not learn of changes.
func TestWatchesThatBreak(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &breakingWatches{}
		client, err := kube.Client(kube.Options{Config: &rest.Config{Host: "http://api", Transport: api}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		dir := podstate.Open(local.Open(t.TempDir(), t.TempDir()))
		NewManager(Options{Client: client, Dir: dir, Log: slog.New(slog.DiscardHandler)}).follow(ctx)
		if api.watches < 60 || api.longest > 2*time.Second {
			t.Errorf("%d watches, with pauses up to %v", api.watches, api.longest)
		}
	})
}

// breakingWatches is an API whose watches break after a while, as those through a proxy.
type breakingWatches struct {
	watches int
	ended   time.Time
	longest time.Duration // from the end of a watch to the next list
}

func (b *breakingWatches) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
	if r.URL.Query().Get("watch") == "" {
		if !b.ended.IsZero() {
			b.longest = max(b.longest, time.Since(b.ended))
		}
		answer.Body = io.NopCloser(strings.NewReader(`{"metadata": {"resourceVersion": "1"}}`))
		return answer, nil
	}
	b.watches++
	answer.Body = io.NopCloser(breaking{b, r.Context()})
	return answer, nil
}

const watchLasts = 50 * time.Second // of the test's clock

// breaking is the body of a watch that breaks.
type breaking struct {
	of  *breakingWatches
	ctx context.Context
}

func (b breaking) Read([]byte) (int, error) {
	select {
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	case <-time.After(watchLasts):
	}
	b.of.ended = time.Now()
	return 0, io.ErrUnexpectedEOF
}

// managerOf returns a manager for an API, and its directory.
func managerOf(t *testing.T, url string) (*Manager, podstate.Dir) {
	t.Helper()
	client, err := kube.Client(kube.Options{Config: &rest.Config{Host: url}})
	if err != nil {
		t.Fatal(err)
	}
	dir := podstate.Open(local.Open(t.TempDir(), t.TempDir()))
	return NewManager(Options{Client: client, Dir: dir, Log: slog.New(slog.DiscardHandler)}), dir
}

// TestAnswersOfAProxy checks that what a proxy answers in the place of the API removes no definition from the disk.
func TestAnswersOfAProxy(t *testing.T) {
	t.Parallel()
	answers := []string{
		`{"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"namespace": "shop", "name": "lan"}, "spec": {"config": "{}"}}]}`,
		`{"error": "log in"}`,
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, answers[0])
		answers = answers[1:]
	}))
	t.Cleanup(api.Close)
	m, dir := managerOf(t, api.URL)
	if _, err := m.list(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.list(t.Context()); err == nil || !strings.Contains(err.Error(), "not a list of the API") {
		t.Errorf("the answer of a proxy: %v", err)
	}
	if _, err := dir.Definition("shop", "lan"); err != nil {
		t.Error(err)
	}
}

// TestSpecOfAnyType checks that a definition whose spec is not as expected keeps no other definition from the disk, with a
// type whose schema allows it.
func TestSpecOfAnyType(t *testing.T) {
	t.Parallel()
	object := func(name, spec string) string {
		return fmt.Sprintf(`{"metadata": {"namespace": "shop", "name": %q, "resourceVersion": "2"}, "spec": %s}`, name, spec)
	}
	const config = `{"type": "bridge"}`
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprintf(w, `{"metadata": {"resourceVersion": "1"}, "items": [%s, %s, %s]}`,
				object("a", `{"config": `+config+`}`), object("b", `"bridge"`), object("c", `{"config": 7}`))
			return
		}
		for _, o := range []string{object("d", "[]"), object("e", `{"config": null}`), object("z", fmt.Sprintf(`{"config": %q}`, config))} {
			fmt.Fprintf(w, `{"type": "ADDED", "object": %s}`, o)
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(api.Close)
	m, dir := managerOf(t, api.URL)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.follow(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	for name, want := range map[string]string{"a": config, "b": "", "c": "7", "d": "", "e": "", "z": config} {
		kerneltest.Within(t, time.Minute, func() error {
			d, err := dir.Definition("shop", name)
			if err == nil && d.Config != want {
				err = fmt.Errorf("%s: the configuration is %q, want %q", name, d.Config, want)
			}
			return err
		})
	}
}

// TestLargeDefinitions checks that an agent lists many definitions of the largest size in small pages, and that it stores no
// larger configuration than allowed. Otherwise, whoever may create definitions in one namespace could exhaust the memory and
// the disks of all nodes.
func TestLargeDefinitions(t *testing.T) {
	t.Parallel()
	const most, all = 32 << 20, 100
	config := strings.Repeat("x", 1<<20)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		first, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		page := map[string]any{"metadata": map[string]any{"resourceVersion": "1"}}
		if end := first + limit; end < all {
			page["metadata"] = map[string]any{"resourceVersion": "1", "continue": strconv.Itoa(end)}
		}
		var items []any
		for i := first; i < min(first+limit, all); i++ {
			metadata := map[string]any{"namespace": "shop", "name": fmt.Sprint("n", i)}
			size := len(config)
			if i == 0 {
				size = maxConfig
			}
			items = append(items, map[string]any{"metadata": metadata, "spec": map[string]any{"config": config[:size]}})
		}
		page["items"] = items
		raw, _ := json.Marshal(page)
		if len(raw) > most {
			t.Errorf("a page of %d definitions has %d bytes", len(items), len(raw))
		}
		_, _ = w.Write(raw)
	}))
	t.Cleanup(api.Close)
	client, err := kube.Client(kube.Options{Config: &rest.Config{Host: api.URL}})
	if err != nil {
		t.Fatal(err)
	}
	dir := podstate.Open(local.Open(t.TempDir(), t.TempDir()))
	if _, err := NewManager(Options{Client: client, Dir: dir}).list(t.Context()); err != nil {
		t.Fatal(err)
	}
	if have, err := dir.Definitions(); len(have) != all {
		t.Errorf("%d definitions on disk (%v), want %d", len(have), err, all)
	}
	for i, want := range map[int]podstate.Definition{
		0: {Config: config[:maxConfig]},
		1: {Problem: "spec.config has 1048576 bytes, and the limit is 65536"},
	} {
		d, err := dir.Definition("shop", fmt.Sprint("n", i))
		if err != nil || d.Config != want.Config || d.Problem != want.Problem {
			t.Errorf("n%d: %d bytes, %q, %v", i, len(d.Config), d.Problem, err)
		}
	}
}
