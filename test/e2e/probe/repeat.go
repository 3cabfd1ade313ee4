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

// Counts is the result of many requests.
type Counts struct {
	Requests, Failed int
	Answers          map[string]int // answers by server name
	Errors           map[string]*Span
}

// Span counts the occurrences of an error, with the times of the first and the last.
type Span struct {
	Times       int
	First, Last time.Time
}

// The pause between two requests, and the timeout of each. TCP sends a lost packet again after a second, which must not
// count as a failure.
const (
	requestPause   = 10 * time.Millisecond
	requestTimeout = 5 * time.Second
)

// repeat sends requests, each on a new connection, the given number of times or until standard input ends. Then it
// prints the counts.
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
	c := Counts{Answers: map[string]int{}, Errors: map[string]*Span{}}
	for c.Requests < limit {
		c.send(network, addr)
		select {
		case <-ended:
			limit = 0
		case <-time.After(requestPause):
		}
	}
	return json.NewEncoder(os.Stdout).Encode(c)
}

func (c *Counts) send(network, addr string) {
	start := time.Now()
	answer, err := request(net.Dialer{Timeout: requestTimeout}, network, addr, requestTimeout)
	name, _, _ := strings.Cut(answer, " ")
	c.Requests++
	if err != nil {
		c.Failed++
		message := fmt.Sprintf("%v after %v", err, time.Since(start).Round(time.Second))
		if c.Errors[message] == nil {
			c.Errors[message] = &Span{First: start}
		}
		c.Errors[message].Times++
		c.Errors[message].Last = start
		return
	}
	c.Answers[name]++
}

// unreadyFile exists while the probe reports that it is not ready.
const unreadyFile = "/unready"

// ready returns an error if the server does not answer or is marked as not ready. The arguments "yes" and "no" set that
// mark instead.
func ready(addr string) error {
	switch addr {
	case "yes":
		return os.Remove(unreadyFile)
	case "no":
		return os.WriteFile(unreadyFile, nil, 0o644)
	}
	if _, err := os.Stat(unreadyFile); !errors.Is(err, fs.ErrNotExist) {
		return errors.New("not ready")
	}
	_, err := request(net.Dialer{Timeout: time.Second}, "tcp", addr, time.Second)
	return err
}
