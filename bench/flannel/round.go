package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/lab"
)

// These are the names of the sides.
const (
	ours         = "fairlead agent"
	flanneldSide = "flanneld"
)

// round creates a lab for each side and measures one, then the other. The first side alternates. Both stay until the
// end, to measure them at rest together.
func round(ctx context.Context, f figures, bin, logs, flanneld string, crowd, i int, rest time.Duration) error {
	names := []string{ours, flanneldSide}
	if i%2 == 1 {
		names = []string{flanneldSide, ours}
	}
	var sides []*side
	for _, name := range names {
		s, err := newSide(ctx, name, bin, logs, flanneld)
		if s != nil {
			defer s.c.Close()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		sides = append(sides, s)
	}
	for _, s := range sides {
		if err := s.measure(ctx, f, crowd, rest > 0 || crowd == crowds()[0]); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if rest == 0 {
		return nil
	}
	return atRest(f, sides, crowd, rest)
}

func (s *side) measure(ctx context.Context, f figures, crowd int, restart bool) error {
	add := func(what string, v float64) { f.add(what, s.name, crowd, v) }
	before := cpu(s.agent.Pid())
	if err := s.crowd(ctx, crowd); err != nil {
		return err
	}
	time.Sleep(500 * time.Millisecond)
	add("CPU of the agent for each node that is added, µs", float64((cpu(s.agent.Pid())-before).Microseconds())/float64(crowd))
	for i := range 3 {
		took, err := s.route(ctx, crowd+1+i)
		if err != nil {
			return err
		}
		add("a node's key written, to the route in the kernel, ms", ms(took))
	}
	puts, sent, err := s.client.traffic()
	if err != nil {
		return err
	}
	a, agent, to, err := s.connect(ctx, add)
	if err != nil {
		return err
	}
	time.Sleep(time.Second)
	puts2, sent2, err := s.client.traffic()
	if err != nil {
		return err
	}
	add("store: keys written for a new host", puts2-puts)
	add("store: sent to both hosts for a new host, KB", (sent2-sent)/1000)
	rss, private := memory(s.agent.Pid())
	add("memory, RSS, MB", rss)
	add("memory, private, MB", private)
	if !restart {
		return nil
	}
	return s.restarts(a, agent, to, add)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// crowd writes the keys of simulated nodes and waits for their routes.
func (s *side) crowd(ctx context.Context, n int) error {
	for i := range n {
		for key, value := range s.keys(i + 1) {
			if err := s.client.put(key, value); err != nil {
				return err
			}
		}
	}
	limited, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	return lab.Until(limited, func() error {
		out, err := s.b.IP(ctx, "route")
		if have := strings.Count("\n"+out, "\n10.250."); err == nil && have != n {
			err = fmt.Errorf("%d routes of %d", have, n)
		}
		return err
	})
}

// route returns the time from the write of a node's key to its route on host b.
func (s *side) route(ctx context.Context, i int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	mon := s.b.Command(ctx, "ip", "-o", "monitor", "route")
	out, err := mon.StdoutPipe()
	if err == nil {
		err = mon.Start()
	}
	if err != nil {
		return 0, err
	}
	defer end(mon)
	time.Sleep(1200 * time.Millisecond) // enough for the watch to start and for the agent to be idle for a second
	began := time.Now()
	for _, key := range sorted(s.keys(i)) {
		if err := s.client.put(key, s.keys(i)[key]); err != nil {
			return 0, err
		}
	}
	return seen(out, fmt.Sprintf("10.250.%d.0/24", i), began)
}

func seen(out io.Reader, word string, began time.Time) (time.Duration, error) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), word) {
			return time.Since(began), nil
		}
	}
	return 0, errors.New("no route to " + word)
}

func end(c *exec.Cmd) {
	_ = c.Process.Kill()
	_ = c.Wait()
}

// connect starts the program on a new host, and waits until a container there gets an answer from the other host's.
func (s *side) connect(ctx context.Context, add func(string, float64)) (a *lab.Node, agent *lab.Process, to netip.Addr, err error) {
	if a, err = s.join(ctx, "a"); err != nil {
		return
	}
	if to, err = s.b.Attach(ctx, "c2", "cbr0"); err != nil {
		return
	}
	if err = a.Container(ctx, "c1"); err != nil {
		return
	}
	began := time.Now()
	if agent, err = s.start(a); err != nil {
		return
	}
	if err = s.leased(ctx, a); err != nil {
		return
	}
	add("connect a new host: from the program's start to subnet.env, ms", ms(time.Since(began)))
	if _, err = a.Add(ctx, "c1", "cbr0", "eth0"); err != nil {
		return
	}
	attached := time.Since(began)
	for ctx.Err() == nil {
		_, err = a.Run(ctx, "ip", "netns", "exec", "c1", "ping", "-q", "-c", "1", "-i", "0.002", "-W", "0.02", to.String())
		if err == nil {
			break
		}
	}
	add("connect a new host: from the program's start to a container's first answer from another host, ms", ms(time.Since(began)))
	add("connect a new host: of that, waiting after it was attached, ms", ms(time.Since(began)-attached))
	return a, agent, to, err
}

// restarts counts the packets lost while the program of host a restarts.
func (s *side) restarts(a *lab.Node, agent *lab.Process, to netip.Addr, add func(string, float64)) error {
	for what, stop := range map[string]func(*lab.Process){
		"packets lost, one a millisecond, stopped and started": func(p *lab.Process) { _ = p.Stop(10 * time.Second) },
		"packets lost, one a millisecond, kill -9 and started": func(p *lab.Process) { p.Kill() },
	} {
		probe, err := a.Probe("c1", to)
		if err != nil {
			return err
		}
		time.Sleep(200 * time.Millisecond)
		stop(agent)
		if agent, err = s.start(a); err != nil {
			return err
		}
		time.Sleep(2 * time.Second)
		l, err := probe.Stop()
		if err != nil {
			return err
		}
		add(what, float64(l.Lost))
	}
	return nil
}

// atRest measures the idle programs of host b, both sides at once.
func atRest(f figures, sides []*side, crowd int, rest time.Duration) error {
	type sum struct {
		cpu  time.Duration
		sent float64
	}
	before := map[*side]sum{}
	for _, s := range sides {
		_, sent, err := s.client.traffic()
		if err != nil {
			return err
		}
		before[s] = sum{cpu(s.agent.Pid()), sent}
	}
	time.Sleep(rest)
	for _, s := range sides {
		_, sent, err := s.client.traffic()
		if err != nil {
			return err
		}
		f.add("CPU at rest, ms a minute", s.name, crowd, ms(cpu(s.agent.Pid())-before[s].cpu)*float64(time.Minute)/float64(rest))
		f.add("store: sent to both hosts at rest, KB a minute", s.name, crowd, (sent-before[s].sent)/1000*float64(time.Minute)/float64(rest))
	}
	return nil
}

// cpu returns the CPU time of a process and of the children that it waited for.
func cpu(pid int) (sum time.Duration) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, t := range threads {
		raw, _ := os.ReadFile(t)
		word, _, _ := strings.Cut(string(raw), " ")
		ns, _ := strconv.ParseInt(word, 10, 64)
		sum += time.Duration(ns)
	}
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(raw), ") ")
	words := strings.Fields(rest)
	for i := 13; i < 15 && i < len(words); i++ { // of children, in whole ticks
		ticks, _ := strconv.Atoi(words[i])
		sum += time.Duration(ticks) * time.Second / 100 // USER_HZ
	}
	return sum
}

// memory returns a process's resident and private memory, in MB.
func memory(pid int) (rss, private float64) {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(raw)) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		kb, _ := strconv.ParseFloat(words[1], 64)
		switch words[0] {
		case "Rss:":
			rss = kb / 1000
		case "Private_Clean:", "Private_Dirty:":
			private += kb / 1000
		}
	}
	return rss, private
}
