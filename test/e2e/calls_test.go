package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// asked is a call as the recording plugin wrote it down: see probe.Call.
type asked struct {
	Command string
	Env     []string
	Config  json.RawMessage
}

// words says what is worth knowing of a call.
func (a asked) words() string {
	var conf struct {
		Version    string          `json:"cniVersion"`
		PrevResult json.RawMessage `json:"prevResult"`
		Runtime    map[string]any  `json:"runtimeConfig"`
	}
	_ = json.Unmarshal(a.Config, &conf)
	w := []string{a.Command, conf.Version}
	if a.Command == "DEL" {
		if slices.Contains(a.Env, "CNI_NETNS=") {
			w = append(w, "without a namespace")
		}
		if conf.PrevResult == nil {
			w = append(w, "without a result")
		}
	}
	if ports, ok := conf.Runtime["portMappings"]; ok && a.Command == "ADD" {
		if strings.Contains(fmt.Sprint(ports), "HostPort") {
			w = append(w, "with keys in Go's case")
		}
	}
	return strings.Join(w, " ")
}

// calls are those of the plugins since the last time, in order.
func (s *stage) calls(t *testing.T) (all []asked) {
	t.Helper()
	raw, err := os.ReadFile(s.host.path(recordFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.RemoveAll(s.host.path(recordFile)); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var a asked
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, a)
	}
	return all
}

// whatItAsks records the calls of a pod's life, and checks the documented behaviour for GC and STATUS.
func whatItAsks(t *testing.T, s *stage) {
	s.calls(t)
	in := s.run(t, pod{ports: bothProtocols(18085)})
	if err := s.restart(in); err != nil {
		t.Fatal(err)
	}
	s.remove(t, in)
	all := s.calls(t)
	if s.lacks(callsStatus) == "" {
		asker := s.client.(interface{ status() error }) // as kubelet is, every few seconds
		eventually(t, 30*time.Second, func() error {
			if err := asker.status(); err != nil {
				return err
			}
			all = append(all, s.calls(t)...)
			if !asks(all, "STATUS") {
				return errors.New("no STATUS")
			}
			return nil
		})
	}
	for a, command := range map[ability]string{callsStatus: "STATUS", callsGC: "GC"} {
		if asks(all, command) != (s.lacks(a) == "") {
			t.Errorf("calls %s: %v; said of it: %q", command, asks(all, command), s.lacks(a))
		}
	}
	if !asks(all, "ADD") || !asks(all, "DEL") {
		t.Errorf("no ADD or no DEL: %v", all)
	}
	if s.fuse == "" {
		s.noted.asked(s.name(), inOrder(all))
	}
}

func asks(all []asked, command string) bool {
	return slices.ContainsFunc(all, func(a asked) bool { return a.Command == command })
}

// inOrder are the calls in words, those of one kind that follow each other once.
func inOrder(all []asked) string {
	var words []string
	for _, a := range all {
		words = append(words, a.words())
	}
	return strings.Join(slices.Compact(words), "; ")
}
