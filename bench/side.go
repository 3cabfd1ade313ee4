package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/bench/figures"
	"github.com/fairlead/fairlead/bench/load"
)

// kind is a way to run a case.
type kind struct {
	name    string
	driver  string // the runtime: a program with arguments
	plugins string // the directory of CNI_PATH
	// rewrite converts a case's list for this side. If it is nil, the list is unchanged.
	rewrite func(b *bench, list string) (string, error)
}

// These are Fairlead's sides.
const (
	ours           = "Fairlead"                            // plugins as processes, under the reference runtime
	ownRuntime     = "Fairlead, own runtime"               // the same under Fairlead's runtime
	fused          = "Fairlead, fused"                     // one process per chain, under the reference runtime
	library        = "Fairlead, in process"                // no process at all, under Fairlead's runtime
	theirsUnderOur = "reference plugins, Fairlead runtime" // the reference plugins under Fairlead's runtime
)

// kinds returns the sides in the order in which they take turns.
func kinds() []kind {
	list := []kind{
		{name: ours, driver: "reference-driver", plugins: "ours"},
		{name: figures.Reference, driver: "reference-driver", plugins: "reference"},
		{name: figures.Floor, driver: "floor-driver"},
		{name: figures.Nothing, driver: "floor-driver"},
		{name: figures.EachEmpty, driver: "floor-driver"},
		{name: ownRuntime, driver: "our-driver", plugins: "ours"},
		{name: fused, driver: "reference-driver", plugins: "ours", rewrite: fuse},
		{name: library, driver: "our-driver in-process", plugins: "ours"},
		{name: theirsUnderOur, driver: "our-driver", plugins: "reference"},
	}
	for _, k := range list {
		if k.name == ours || k.name == fused || k.name == figures.Floor {
			k.name += figures.First
			list = append(list, k)
		}
	}
	return list
}

// wants reports whether a side takes part in a case.
func (b *bench) wants(c benchCase, name string) bool {
	only := strings.Split(b.options.sides, ";")
	base, first := strings.CutSuffix(name, figures.First)
	switch {
	case first:
		return len(c.levels) > 0 && b.wants(c, base)
	case b.options.sides != "" && !slices.Contains(only, name):
		return false
	case name == figures.Reference:
		return !c.alone
	case name == ours || name == figures.Floor:
		return true
	}
	return slices.Contains(c.more, name) || name == figures.EachEmpty && slices.Contains(only, name)
}

func sideNames() string {
	names := make([]string, len(kinds()))
	for i, k := range kinds() {
		names[i] = k.name
	}
	return strings.Join(names, "; ")
}

// fuse converts a list so that one process runs it.
func fuse(b *bench, list string) (string, error) {
	file := filepath.Join(b.dir, "list.conflist")
	if err := os.WriteFile(file, []byte(list), 0o600); err != nil {
		return "", err
	}
	out, err := exec.Command(filepath.Join(b.programs, "fairlead"), "fuse", file).Output()
	if err != nil {
		return "", fmt.Errorf("fuse a list: %w", err)
	}
	return string(out), nil
}

// side is a running side.
type side struct {
	kind
	word string // its name in file names
	host string // namespace of its host
	list string // the list of the case
	cmd  *exec.Cmd
	in   io.Closer
	ask  *json.Encoder
	hear *json.Decoder
}

func (w *world) start(k kind) (*side, error) {
	s := &side{kind: k, word: strings.NewReplacer(" ", "-", ",", "").Replace(k.name)}
	host := "host-" + s.word
	if err := w.namespaces(host); err != nil {
		return nil, err
	}
	s.host = w.netns[host]
	lines := append([]string{"link set lo up"}, w.c.setup...)
	if err := inside(s.host, strings.Join(lines, "\n"), "ip", "-batch", "-"); err != nil {
		return nil, err
	}
	var err error
	if s.list, err = w.listFor(s, w.c.list); err != nil {
		return nil, err
	}
	return s, s.run(w.programs)
}

// listFor puts the side into the network's name and applies the side's rewrite.
func (w *world) listFor(s *side, list string) (string, error) {
	list = strings.ReplaceAll(list, "$SIDE", s.word)
	if s.rewrite == nil {
		return list, nil
	}
	return s.rewrite(w.bench, list)
}

func (s *side) run(programs string) error {
	s.cmd = exec.Command("nsenter", append([]string{"--net=" + s.host, "--"}, strings.Fields(filepath.Join(programs, s.driver))...)...)
	s.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "CNI_PATH=" + filepath.Join(programs, s.plugins), "FAIRLEAD_RUN=/run/fairlead/" + s.word,
		"FAIRLEAD_BENCH_CACHE=/var/lib/cni/cache-" + s.word, "FAIRLEAD_BENCH_EMPTY=" + filepath.Join(programs, "empty"),
		load.PeakProgram + "=" + filepath.Join(programs, "peak"),
	}
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // when this thread ends, which is the main thread
	in, err := s.cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	s.in, s.ask, s.hear = in, json.NewEncoder(in), json.NewDecoder(out)
	return s.cmd.Start()
}

// stop stops the side's process.
func (s *side) stop() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.in.Close()
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// do sends jobs to the side. If the run is interrupted, it stops the side.
func (w *world) do(s *side, r load.Request) (load.Answer, error) {
	var a load.Answer
	received := make(chan error, 1)
	go func() { received <- errors.Join(s.ask.Encode(r), s.hear.Decode(&a)) }()
	select {
	case <-w.ctx.Done():
		_ = s.cmd.Process.Kill()
		<-received
		return a, w.ctx.Err()
	case err := <-received:
		switch {
		case errors.Is(err, io.EOF):
			return a, fmt.Errorf("%s: %w", s.name, errEnded)
		case err != nil:
			return a, fmt.Errorf("%s: %w", s.name, err)
		case a.Error != "":
			return a, fmt.Errorf("%s: %s", s.name, a.Error)
		}
		return a, nil
	}
}
