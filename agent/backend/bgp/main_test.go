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

// The test's program is a speaker, too: goroutines are in no namespace of a thread's,
// so a speaker in a namespace is a process there. It is told configurations, a line of
// JSON each, and tells what it learned whenever that changes.
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

// told is a line for a speaker.
type told struct {
	Config bgp.Config
	Kept   []backend.Learned
	Stop   bool
}

// said is a line of a speaker's.
type said struct {
	Learned []backend.Learned
	States  map[string]string
}

func speaker() error {
	in := bufio.NewScanner(os.Stdin)
	var s *bgp.Speaker
	for in.Scan() {
		var t told
		if err := json.Unmarshal(in.Bytes(), &t); err != nil {
			return err
		}
		switch {
		case t.Stop:
			s.Stop()
			return nil
		case s != nil:
			if err := s.Set(context.Background(), t.Config); err != nil {
				return err
			}
		default:
			var err error
			if s, err = bgp.Start(context.Background(), t.Config, t.Kept, slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
				return err
			}
			go tell(s)
		}
	}
	return in.Err()
}

func tell(s *bgp.Speaker) {
	for {
		out := said{States: map[string]string{}}
		var err error
		if out.Learned, err = s.Learned(); err != nil {
			panic(err)
		}
		for a, state := range s.States() {
			out.States[a.String()] = state
		}
		raw, err := json.Marshal(out)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(raw))
		<-s.Changed()
	}
}
