package bgp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/backend/bgp"
)

// TestMain lets the test binary run as a speaker. A goroutine cannot stay in a network namespace, so each speaker is a
// process in its namespace. It reads configurations, one JSON object per line, and prints what it learned after each
// change.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "speaker" {
		if err := speaker(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// command is an input line of a speaker.
type command struct {
	Config bgp.Config
	Kept   []backend.Learned
	Stop   bool
}

// outputLine is an output line of a speaker.
type outputLine struct {
	Learned []backend.Learned
	States  map[string]string
}

func speaker() error {
	in := bufio.NewScanner(os.Stdin)
	lines := make(chan command)
	go func() {
		defer close(lines)
		for in.Scan() {
			var t command
			if err := json.Unmarshal(in.Bytes(), &t); err != nil {
				panic(err)
			}
			lines <- t
		}
	}()
	n := &bgp.Node{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	var t command
	for {
		select {
		case next, ok := <-lines:
			if !ok || next.Stop {
				n.Stop()
				return in.Err()
			}
			t = next
		case <-n.Changed():
		}
		learned, err := n.Reconcile(context.Background(), &t.Config, func() ([]backend.Learned, error) { return t.Kept, nil })
		if err != nil {
			return err
		}
		raw, err := json.Marshal(outputLine{learned, n.States()})
		if err != nil {
			return err
		}
		fmt.Println(string(raw))
	}
}
