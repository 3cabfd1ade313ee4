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

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// pluginCall is a call as the recording plugin wrote it: see probe.Call.
type pluginCall struct {
	Command string
	Env     []string
	Config  json.RawMessage
}

// summary returns the command, the version, and anything unusual about the call.
func (a pluginCall) summary() string {
	var conf struct {
		Version    string          `json:"cniVersion"`
		PrevResult json.RawMessage `json:"prevResult"`
		Runtime    map[string]any  `json:"runtimeConfig"`
	}
	_ = json.Unmarshal(a.Config, &conf)
	words := []string{a.Command, conf.Version}
	if a.Command == "DEL" {
		if slices.Contains(a.Env, "CNI_NETNS=") {
			words = append(words, "without a namespace")
		}
		if conf.PrevResult == nil {
			words = append(words, "without a result")
		}
	}
	if ports, ok := conf.Runtime["portMappings"]; ok && a.Command == "ADD" {
		if strings.Contains(fmt.Sprint(ports), "HostPort") {
			words = append(words, "with capitalized keys")
		}
	}
	return strings.Join(words, " ")
}

// takeCalls returns the calls of plugins since its last use, in order.
func (s *suite) takeCalls(t *testing.T) (all []pluginCall) {
	t.Helper()
	raw, err := os.ReadFile(s.host.path(recordFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.RemoveAll(s.host.path(recordFile)); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var a pluginCall
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, a)
	}
	return all
}

// recordsPluginCalls records the calls during a pod's life, and checks whether the client calls GC and STATUS as
// documented.
func recordsPluginCalls(t *testing.T, s *suite) {
	s.takeCalls(t)
	ctr := s.run(t, pod{ports: tcpAndUDP(18085)})
	if err := s.restart(ctr); err != nil {
		t.Fatal(err)
	}
	s.remove(t, ctr)
	all := s.takeCalls(t)
	if s.unsupported(callsStatus) == "" {
		runtime := s.client.(interface{ status() error }) // kubelet asks for it every few seconds
		kerneltest.Within(t, 30*time.Second, func() error {
			if err := runtime.status(); err != nil {
				return err
			}
			all = append(all, s.takeCalls(t)...)
			if !hasCall(all, "STATUS") {
				return errors.New("no STATUS")
			}
			return nil
		})
	}
	if c, ok := s.client.(interface{ callsAtStart() []string }); ok {
		if err := s.kill(); err != nil {
			t.Fatal(err)
		}
		s.relaunch(t)
		atStart := s.takeCalls(t)
		for _, command := range c.callsAtStart() {
			if !hasCall(atStart, command) {
				t.Errorf("no %s at the start: %v", command, atStart)
			}
		}
	}
	for a, command := range map[feature]string{callsStatus: "STATUS", callsGC: "GC"} {
		if hasCall(all, command) != (s.unsupported(a) == "") {
			t.Errorf("calls %s: %v; documented as unsupported: %q", command, hasCall(all, command), s.unsupported(a))
		}
	}
	if !hasCall(all, "ADD") || !hasCall(all, "DEL") {
		t.Errorf("no ADD or no DEL: %v", all)
	}
	if s.fuse == "" {
		s.results.addCalls(s.name(), summarize(all))
	}
}

func hasCall(all []pluginCall, command string) bool {
	return slices.ContainsFunc(all, func(a pluginCall) bool { return a.Command == command })
}

// summarize describes the calls in order, and merges equal neighbours.
func summarize(all []pluginCall) string {
	var words []string
	for _, a := range all {
		words = append(words, a.summary())
	}
	return strings.Join(slices.Compact(words), "; ")
}
