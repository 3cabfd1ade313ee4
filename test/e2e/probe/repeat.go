package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Counted is what came of many questions.
type Counted struct {
	Asked, Failed int
	By            map[string]int // answers by server
	Errors        map[string]*Span
}

// Span is how often something was seen, and when first and last.
type Span struct {
	Times       int
	First, Last time.Time
}

// Between two questions, and until one has failed: a packet that is lost once is
// sent again after a second.
const (
	repeatPause    = 10 * time.Millisecond
	repeatPatience = 5 * time.Second
)

// repeat asks so many times, or until standard input ends, each time by a new
// connection, and prints what it counted.
func repeat(network, addr, times string) error {
	limit, ended := 1<<30, make(chan struct{})
	if times == "" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			close(ended)
		}()
	} else if n, err := strconv.Atoi(times); err == nil {
		limit = n
	} else {
		return err
	}
	c := Counted{By: map[string]int{}, Errors: map[string]*Span{}}
	for c.Asked < limit {
		c.ask(network, addr)
		select {
		case <-ended:
			limit = 0
		case <-time.After(repeatPause):
		}
	}
	return json.NewEncoder(os.Stdout).Encode(c)
}

func (c *Counted) ask(network, addr string) {
	start := time.Now()
	answer, err := who(net.Dialer{Timeout: repeatPatience}, network, addr, repeatPatience)
	name, _, _ := strings.Cut(answer, " ")
	c.Asked++
	if err != nil {
		c.Failed++
		words := fmt.Sprintf("%v after %v", err, time.Since(start).Round(time.Second))
		if c.Errors[words] == nil {
			c.Errors[words] = &Span{First: start}
		}
		c.Errors[words].Times++
		c.Errors[words].Last = start
		return
	}
	c.By[name]++
}

// unready is there while the probe does not want to be asked.
const unready = "/unready"

// ready says by its exit code whether a server answers and wants to be asked;
// yes or no sets whether it wants that.
func ready(addr string) error {
	switch addr {
	case "yes":
		return os.Remove(unready)
	case "no":
		return os.WriteFile(unready, nil, 0o644)
	}
	if _, err := os.Stat(unready); !errors.Is(err, fs.ErrNotExist) {
		return errors.New("not ready")
	}
	_, err := who(net.Dialer{Timeout: time.Second}, "tcp", addr, time.Second)
	return err
}
