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

// result is what a client's case came to.
type result struct {
	Client, Version, Lists, Case string

	Said string // "passed", "failed", or why it was not asked
	Took time.Duration
}

// results gathers them, of clients that run at once.
type results struct {
	mu    sync.Mutex
	Rows  []result
	Calls map[string]string // what a client asks of plugins in a pod's life
}

const casesFile = "testdata/cases.json"

func (r *results) add(row result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Rows = append(r.Rows, row)
}

func (r *results) asked(client, calls string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Calls[client] = calls
}

// readResults are those of the last runs, by whose page they were written.
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

// write replaces what the file has of the same clients and lists.
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
