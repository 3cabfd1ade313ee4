package main

import (
	"cmp"
	"errors"
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

// streamInterval is the default time between two packets of a stream. streamGrace is how long the stream waits for the
// last answers.
const (
	streamInterval = "1ms"
	streamGrace    = 2 * time.Second
)

// stream waits for a first answer from a UDP server, and then sends one numbered packet per interval from the same port.
// On SIGTERM it prints the number of packets sent, the number without an answer, and when these were sent.
func stream(addr, interval string) error {
	every, err := time.ParseDuration(cmp.Or(interval, streamInterval))
	if err != nil {
		return err
	}
	c, err := net.Dial("udp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.(*net.UDPConn).SetReadBuffer(readBuffer)
	f := &flow{unanswered: map[int]time.Time{}}
	if err := waitForAnswer(c); err != nil {
		return err
	}
	go f.receive(c)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	fmt.Println("flows")
	for tick := time.NewTicker(every); ; {
		select {
		case <-tick.C:
			// An error reports an earlier packet, which has no answer then. This packet is sent nevertheless.
			_, _ = fmt.Fprint(c, f.next())
		case <-stop:
			f.end()
			return nil
		}
	}
}

// drops prints how many packets were dropped at full UDP socket buffers of this network namespace. That happens when
// the receiving program waits for a processor on a busy machine.
func drops() error {
	raw, err := os.ReadFile("/proc/net/snmp")
	if err != nil {
		return err
	}
	all, found := 0, false
	var names []string
	for line := range strings.Lines(string(raw)) {
		words := strings.Fields(line)
		if words[0] != "Udp:" {
			continue
		}
		if i := slices.Index(names, "RcvbufErrors"); i >= 0 {
			n, err := strconv.Atoi(words[i])
			if err != nil {
				return err
			}
			all, found = n, true
		}
		names = words
	}
	if !found {
		return fmt.Errorf("no RcvbufErrors in %s", raw)
	}
	if raw, err = os.ReadFile("/proc/net/snmp6"); err != nil && !errors.Is(err, os.ErrNotExist) { // without IPv6 there is none
		return err
	}
	for line := range strings.Lines(string(raw)) {
		if words := strings.Fields(line); words[0] == "Udp6RcvbufErrors" {
			n, err := strconv.Atoi(words[1])
			if err != nil {
				return err
			}
			all += n
		}
	}
	fmt.Println(all)
	return nil
}

// waitForAnswer sends requests until the server answers, because ARP or neighbour discovery takes a moment.
func waitForAnswer(c net.Conn) (err error) {
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

// flow records the packets sent and those without an answer yet.
type flow struct {
	mu         sync.Mutex
	sent       int
	unanswered map[int]time.Time
}

func (f *flow) next() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent++
	f.unanswered[f.sent] = time.Now()
	return f.sent
}

func (f *flow) receive(c net.Conn) {
	for b := make([]byte, 64); ; {
		n, err := c.Read(b)
		if err != nil {
			continue // an ICMP error for an earlier packet
		}
		if number, err := strconv.Atoi(strings.TrimSpace(string(b[:n]))); err == nil {
			f.mu.Lock()
			delete(f.unanswered, number)
			f.mu.Unlock()
		}
	}
}

func (f *flow) end() {
	for end := time.Now().Add(streamGrace); f.missing() > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Println(f.sent, len(f.unanswered))
	for n := range f.sent {
		if at, ok := f.unanswered[n+1]; ok {
			fmt.Println(n+1, at.Format("15:04:05.000"))
		}
	}
}

func (f *flow) missing() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.unanswered)
}
