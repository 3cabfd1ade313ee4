package main

import (
	"bufio"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/bench/figures"
	"github.com/fairlead/fairlead/bench/load"
	"github.com/fairlead/fairlead/libcni"
)

// TestCases checks that a runtime accepts the list of every case, and that titles are unique.
func TestCases(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range cases(false) {
		if seen[c.title()] {
			t.Errorf("%s: two cases have this title", c.title())
		}
		seen[c.title()] = true
		for _, n := range append(c.networks, network{list: c.list}) {
			list, err := libcni.ConfListFromBytes([]byte(strings.ReplaceAll(n.list, "$SIDE", "side")))
			if err != nil || !strings.HasSuffix(list.Name, "-side") {
				t.Errorf("%s: %v: %s", c.title(), err, n.list)
			}
		}
	}
	if len(cases(true)) == 0 || len(seen) < 50 {
		t.Errorf("%d cases", len(seen))
	}
}

// TestTargets checks that a full run measures the figure of every target, with all its sides.
func TestTargets(t *testing.T) {
	t.Parallel()
	var full figures.Report
	for _, c := range cases(false) {
		names := []string{c.name}
		for _, level := range c.levels {
			names = append(names, c.name+standing(level))
		}
		for _, name := range names {
			for _, verb := range c.operations() {
				for _, by := range []string{ours, fused, library} {
					full.Rows = append(full.Rows, figures.Row{Case: name, Verb: verb, By: by, Memory: 1, OverFirst: 1,
						Faster: &figures.Ratio{Median: 1}, OverFloor: &figures.Ratio{Median: 1}, OverNothing: &figures.Ratio{Median: 1}})
				}
			}
		}
	}
	for _, target := range targets() {
		if v := target.Value(full); v == nil || *v != 1 {
			t.Errorf("%s: no case measures this figure", target.Text)
		}
	}
}

// TestProcessorTimeAdvances checks that the processor time advances and is not all idle.
func TestProcessorTimeAdvances(t *testing.T) {
	t.Parallel()
	idle, all := ticks()
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); { // keep the processor busy
	}
	idleNow, allNow := ticks()
	if idle <= 0 || all <= idle || allNow <= all || allNow-all <= idleNow-idle {
		t.Errorf("idle %d of %d, then %d of %d", idle, all, idleNow, allNow)
	}
}

func TestEcho(t *testing.T) {
	t.Parallel()
	for _, id := range []uint16{0, 1, 0x1234, 0xf7fe, 0xf7ff, 0xffff} {
		sum := uint32(0)
		for b := echo(id); len(b) > 0; b = b[2:] {
			sum += uint32(binary.BigEndian.Uint16(b))
		}
		if sum = sum>>16 + sum&0xffff; sum != 0xffff {
			t.Errorf("id %#x: words add up to %#x", id, sum)
		}
	}
}

// TestRun checks that a run of two rounds has every figure, and that the floor supports every case.
func TestRun(t *testing.T) {
	t.Parallel()
	programs := buildPrograms(t)
	t.Run("two rounds", func(t *testing.T) {
		t.Parallel()
		r := runBench(t, programs, "-case", "^lists: bridge . host-local$", "-rounds", "2", "-write", t.TempDir())
		for _, verb := range []string{"ADD", "CHECK", "DEL"} {
			row := figures.Row{}
			for _, x := range r.Rows {
				if x.Verb == verb && x.By == ours {
					row = x
				}
			}
			if row.Reference == nil || row.Floor == nil || row.Faster == nil || row.OverFloor == nil || row.LessCPU == nil || row.Ours.Rounds != 2 {
				t.Fatalf("%s: %+v", verb, row)
			}
			if row.Ours.Median <= 0 || row.Ours.CPU <= 0 || row.Faster.Median <= 0 || verb == "ADD" && (row.Ours.Peak < 1000 || row.Reference.Peak < 1000) {
				t.Errorf("%s: %+v", verb, row)
			}
		}
	})
	t.Run("floor", func(t *testing.T) {
		t.Parallel()
		r := runBench(t, programs, "-floor", "-case", "^(lists|plugins|examples|at once: .*, 2 at once)", "-quick", "-rounds", "1")
		if len(r.Rows) < 50 {
			t.Errorf("%d rows", len(r.Rows))
		}
	})
	t.Run("present", func(t *testing.T) {
		t.Parallel()
		r := runBench(t, programs, "-case", "^present: bridge . host-local", "-sides", ours+";"+figures.Floor, "-quick", "-rounds", "1")
		last := r.Rows[len(r.Rows)-1]
		if len(r.Rows) != 4 || last.Case != plainName+standing(100) || last.OverFirst <= 0 || last.FloorGrows <= 0 {
			t.Errorf("%d rows, the last %+v", len(r.Rows), last)
		}
	})
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		peakOf(t, programs)
	})
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		interrupt(t, programs)
	})
}

// interrupt interrupts a run during a case. The run must report it and leave nothing behind.
func interrupt(t *testing.T, programs string) {
	temp := t.TempDir()
	cmd := benchCommand("-case", "^node: .*portmap", "-programs", programs)
	cmd.Env = append(cmd.Env, "TMPDIR="+temp)
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(stderr).ReadString('\n')
	time.Sleep(500 * time.Millisecond) // the run takes many seconds, so it is in the middle of a case now
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(stderr)
	if err := cmd.Wait(); err == nil || !strings.Contains(string(rest), "interrupted") {
		t.Errorf("%v: %s%s", err, line, rest)
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("still exists: %v %v", left, err)
	}
}

// peakOf measures an empty program and a program with a large child, whose exit code must be passed on.
func peakOf(t *testing.T, programs string) {
	kib := func(name string, want int, argv ...string) int {
		script := filepath.Join(t.TempDir(), "run")
		if err := os.WriteFile(script, []byte("#!/bin/sh\n"+strings.Join(argv, " ")+"\nexit 3\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		path := script
		if len(argv) == 0 {
			path = filepath.Join(programs, "empty")
		}
		file := filepath.Join(t.TempDir(), "kib")
		cmd := exec.Command(filepath.Join(programs, "peak"))
		cmd.Env = append(os.Environ(), load.PeakArgv0+"="+path, load.PeakFile+"="+file)
		out, _ := cmd.CombinedOutput()
		raw, err := os.ReadFile(file)
		n, _ := strconv.Atoi(string(raw))
		if err != nil || cmd.ProcessState.ExitCode() != want || n == 0 {
			t.Fatalf("%s: exit code %d, %v: %q %s", name, cmd.ProcessState.ExitCode(), err, raw, out)
		}
		return n
	}
	small, large := kib("empty", 0), kib("large", 3, "head -c 64M /dev/zero | tail -c 1 >/dev/null;", "dd if=/dev/zero of=/dev/null bs=64M count=1 2>/dev/null")
	if small < 500 || small > 20<<10 || large < 64<<10 || large > 256<<10 {
		t.Errorf("an empty program had %d KiB, one with a child that has 64 MiB %d KiB", small, large)
	}
}
