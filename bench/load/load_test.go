package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// ask serves requests and returns the answers.
func ask(t *testing.T, do func(context.Context, Job) error, requests ...Request) (answers []Answer) {
	t.Helper()
	var in, out bytes.Buffer
	for _, r := range requests {
		if err := json.NewEncoder(&in).Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := Serve(&in, &out, do); err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(&out); d.More(); {
		var a Answer
		if err := d.Decode(&a); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, a)
	}
	return answers
}

func TestServe(t *testing.T) {
	t.Parallel()
	var done, now, most atomic.Int32
	do := func(_ context.Context, j Job) error {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		done.Add(1)
		time.Sleep(5 * time.Millisecond)
		if j.Container == "bad" {
			return errors.New("no")
		}
		return nil
	}
	jobs := make([]Job, 7)
	a := ask(t, do, Request{Jobs: jobs, AtOnce: 3}, Request{Jobs: jobs[:1]}, Request{Jobs: []Job{{Verb: "ADD", Container: "good"}, {Verb: "ADD", Container: "bad"}}})
	if len(a) != 3 || done.Load() != 10 || most.Load() != 3 {
		t.Fatalf("%d answers, %d jobs, %d at once; want 3, 10, 3", len(a), done.Load(), most.Load())
	}
	if len(a[0].Each) != 7 || slices.Min(a[0].Each) < 5 || a[0].All < 15 || a[0].Error != "" {
		t.Errorf("three at once: %+v", a[0])
	}
	if a[1].All < a[1].Each[0] {
		t.Errorf("one: %+v", a[1])
	}
	if a[2].Error != "ADD of bad: no" {
		t.Errorf("error %q", a[2].Error)
	}
}

func TestServeRefuses(t *testing.T) {
	t.Parallel()
	if err := Serve(strings.NewReader("ADD"), &bytes.Buffer{}, nil); err == nil {
		t.Error("invalid JSON was accepted as a request")
	}
}

// TestExec checks that only the requested plugins' time is counted.
func TestExec(t *testing.T) {
	t.Parallel()
	do := func(ctx context.Context, _ Job) error {
		for _, path := range []string{"/a/one", "/a/two", "/a/two"} {
			out, err := Exec(ctx, path, []string{"K=V"}, func(p string, env []string) ([]byte, error) {
				time.Sleep(4 * time.Millisecond)
				return []byte(p + env[0]), nil
			})
			if err != nil || string(out) != path+"K=V" {
				return errors.New(string(out))
			}
		}
		Note(ctx, 1000)
		return nil
	}
	a := ask(t, do, Request{Jobs: []Job{{}, {Only: "two"}, {Only: "none"}}})[0]
	for i, least := range []float64{1012, 1008, 1000} {
		if a.Plugins[i] < least || a.Plugins[i] > least+1000 || a.Error != "" {
			t.Errorf("%+v: plugins took %v, want %v and a little", a, a.Plugins[i], least)
		}
	}
}

// TestPeak checks that the memory is what the measuring program writes.
func TestPeak(t *testing.T) {
	t.Setenv(PeakProgram, "/the/peak")
	output := "4711"
	do := func(ctx context.Context, _ Job) error {
		_, err := Exec(ctx, "/a/one", nil, func(p string, env []string) ([]byte, error) {
			file := ""
			for _, v := range env {
				if f, ok := strings.CutPrefix(v, PeakFile+"="); ok {
					file = f
				}
			}
			if p != "/the/peak" || !slices.Contains(env, PeakArgv0+"=/a/one") || filepath.Base(file) == "" {
				return nil, errors.New("started as " + p)
			}
			return nil, os.WriteFile(file, []byte(output), 0o600)
		})
		return err
	}
	if a := ask(t, do, Request{Jobs: []Job{{}}, Peak: true})[0]; a.Peak != 4711 || a.Error != "" {
		t.Errorf("%+v", a)
	}
	output = "much"
	if a := ask(t, do, Request{Jobs: []Job{{}}, Peak: true})[0]; !strings.Contains(a.Error, "memory of /a/one") {
		t.Errorf("%+v", a)
	}
}
