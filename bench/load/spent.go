package load

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// These environment variables start a plugin through the program that measures memory. See bench/peak.
const (
	PeakProgram = "FAIRLEAD_BENCH_PEAK"      // path of that program, in the environment of every side
	PeakArgv0   = "FAIRLEAD_BENCH_PEAK_OF"   // the program to start
	PeakFile    = "FAIRLEAD_BENCH_PEAK_FILE" // file for the result, in KiB
)

type spentKey struct{}

// spent is the time and memory that the plugins of one job used.
type spent struct {
	time    float64 // ms
	peak    int     // KiB
	only    string
	measure bool
}

func note(only string, measure bool) (context.Context, *spent) {
	s := &spent{only: only, measure: measure}
	return context.WithValue(context.Background(), spentKey{}, s), s
}

// Exec calls run to run a plugin, and adds its cost to the context's job.
func Exec(ctx context.Context, path string, env []string, run func(path string, env []string) ([]byte, error)) ([]byte, error) {
	s := ctx.Value(spentKey{}).(*spent)
	if s.measure && s.counts(path) {
		return s.measured(path, env, run)
	}
	start := time.Now()
	out, err := run(path, env)
	if s.counts(path) {
		s.time += since(start)
	}
	return out, err
}

func (s *spent) counts(path string) bool { return s.only == "" || s.only == filepath.Base(path) }

// Note adds time in ms to the plugins' time, for work that did not run through Exec.
func Note(ctx context.Context, ms float64) { ctx.Value(spentKey{}).(*spent).time += ms }

func (s *spent) measured(path string, env []string, run func(string, []string) ([]byte, error)) ([]byte, error) {
	f, err := os.CreateTemp("", "peak")
	if err != nil {
		return nil, err
	}
	f.Close()
	defer os.Remove(f.Name())
	out, err := run(os.Getenv(PeakProgram), append(env, PeakArgv0+"="+path, PeakFile+"="+f.Name()))
	if err != nil {
		return out, err
	}
	raw, err := os.ReadFile(f.Name())
	if err != nil {
		return nil, err
	}
	kib, err := strconv.Atoi(string(raw))
	if err != nil {
		return nil, fmt.Errorf("memory of %s: %w", path, err)
	}
	s.peak = max(s.peak, kib)
	return out, nil
}
