package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// streamPause is between two packets of a stream; streamPatience is how long the
// last ones may be on their way.
const (
	streamPause    = time.Millisecond
	streamPatience = 2 * time.Second
)

// stream sends a server of UDP numbered packets, from one port and one a
// millisecond, once it has answered to a first. Told to stop, it prints how many
// it sent, to how many there was no answer, and when those were sent.
func stream(addr string) error {
	c, err := net.Dial("udp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	f := &flow{lost: map[int]time.Time{}}
	if err := greet(c); err != nil {
		return err
	}
	go f.hear(c)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	fmt.Println("flows")
	for tick := time.NewTicker(streamPause); ; {
		select {
		case <-tick.C:
			// An error is what came back for an earlier packet: that one is lost, this one goes.
			_, _ = fmt.Fprint(c, f.next())
		case <-stop:
			f.end()
			return nil
		}
	}
}

// drops prints how many packets this network's sockets of UDP had no room for: whose
// program had to wait for a processor, as on a busy machine.
func drops() error {
	raw, err := os.ReadFile("/proc/net/snmp")
	if err != nil {
		return err
	}
	var names []string
	for line := range strings.Lines(string(raw)) {
		words := strings.Fields(line)
		if words[0] != "Udp:" {
			continue
		}
		if i := slices.Index(names, "RcvbufErrors"); i >= 0 {
			fmt.Println(words[i])
			return nil
		}
		names = words
	}
	return fmt.Errorf("no RcvbufErrors in %s", raw)
}

// greet asks until somebody answers: neighbours have to be found.
func greet(c net.Conn) (err error) {
	for range 100 {
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err = c.Write([]byte("who\n")); err == nil {
			if _, err = c.Read(make([]byte, 64)); err == nil {
				break
			}
		}
	}
	_ = c.SetReadDeadline(time.Time{})
	return err
}

// flow is what was sent and has not been answered.
type flow struct {
	mu   sync.Mutex
	sent int
	lost map[int]time.Time
}

func (f *flow) next() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent++
	f.lost[f.sent] = time.Now()
	return f.sent
}

func (f *flow) hear(c net.Conn) {
	for b := make([]byte, 64); ; {
		n, err := c.Read(b)
		if err != nil {
			continue // see stream
		}
		if number, err := strconv.Atoi(strings.TrimSpace(string(b[:n]))); err == nil {
			f.mu.Lock()
			delete(f.lost, number)
			f.mu.Unlock()
		}
	}
}

func (f *flow) end() {
	for end := time.Now().Add(streamPatience); f.missing() > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Println(f.sent, len(f.lost))
	for n := range f.sent {
		if at, ok := f.lost[n+1]; ok {
			fmt.Println(n+1, at.Format("15:04:05.000"))
		}
	}
}

func (f *flow) missing() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.lost)
}
