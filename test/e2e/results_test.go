package e2e

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// result is the result of a case with one client.
type result struct {
	Client, Version, Lists, Case string

	Outcome string // "passed", "failed", or why the client was skipped
	Took    time.Duration
}

// results collects the results of clients that run concurrently.
type results struct {
	mu    sync.Mutex
	Rows  []result
	Calls map[string]string // by client: the plugin calls during a pod's life
}

const casesFile = "testdata/cases.json"

func (r *results) add(row result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Rows = append(r.Rows, row)
}

func (r *results) addCalls(client, calls string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Calls[client] = calls
}

// readResults returns the recorded results.
func readResults(t *testing.T) *results {
	t.Helper()
	r := &results{Calls: map[string]string{}}
	raw, err := os.ReadFile(casesFile)
	if errors.Is(err, fs.ErrNotExist) {
		return r
	}
	if err == nil {
		err = json.Unmarshal(raw, r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// write replaces the recorded results of the same clients and lists.
func (r *results) write(t *testing.T) *results {
	t.Helper()
	all := readResults(t)
	all.Rows = slices.DeleteFunc(all.Rows, func(old result) bool {
		return slices.ContainsFunc(r.Rows, func(n result) bool { return n.Client == old.Client && n.Lists == old.Lists })
	})
	all.Rows = append(all.Rows, r.Rows...)
	for client, calls := range r.Calls {
		all.Calls[client] = calls
	}
	all.sort()
	raw, err := json.MarshalIndent(all, "", " ")
	if err == nil {
		err = os.WriteFile(casesFile, append(raw, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}
