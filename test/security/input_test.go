package security

import (
	"fmt"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"
)

// endless returns a gigabyte of input that starts like a configuration.
func endless() io.Reader {
	return io.MultiReader(strings.NewReader(`{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "x": "`), io.LimitReader(letters{}, 1<<30))
}

type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// The limits of memory and time that a plugin may use for excessive input.
const (
	maxMemory = 256 << 20 // bytes; the test binary itself uses about 40 million
	maxTime   = 20 * time.Second
)

// TestInputLimits checks that a plugin limits the length, the depth, the numbers and the keys of its input.
func TestInputLimits(t *testing.T) {
	head := `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", `
	for name, tt := range map[string]struct {
		stdin func() io.Reader
		want  string
	}{
		"a gigabyte":           {endless, "stdin"},
		"nested arrays":        {reader(head + `"x": ` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`), "nested too deeply"},
		"nested objects":       {reader(head + `"x": ` + strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000) + `}`), "nested too deeply"},
		"nested, not closed":   {reader(head + `"x": ` + strings.Repeat("[", 500_000)), ""},
		"nested in prevResult": {reader(head + `"prevResult": {"cniVersion": "1.0.0", "x": ` + strings.Repeat("[", 50_000) + strings.Repeat("]", 50_000) + `}}`), "nested too deeply"},
		"nested in ipam":       {reader(head + `"ipam": {"type": "host-local", "x": ` + strings.Repeat("[", 50_000) + strings.Repeat("]", 50_000) + `}}`), "nested too deeply"},
		"a huge number":        {reader(head + `"mtu": ` + strings.Repeat("9", 500_000) + `}`), "mtu = "},
		"a huge exponent":      {reader(head + `"mtu": 1e999999999}`), "mtu = "},
		"a number too large":   {reader(head + `"mtu": 99999999999999999999}`), "mtu = "},
		"many trunks":          {reader(head + `"vlanTrunk": [` + strings.Repeat(`{"id": 5000},`, 60_000) + `{}]}`), "vlanTrunk"},
		"many keys":            {reader(head + manyKeys(100_000) + `"mtu": -1}`), "mtu = -1"},
		"one key many times":   {reader(head + strings.Repeat(`"mtu": 1500, `, 60_000) + `"mtu": -1}`), "mtu = -1"},
		"zero bytes":           {reader(strings.Repeat("\x00", 900_000)), "want a value, found"},
		"the largest subnet":   {reader(head + `"ipam": {"type": "host-local", "dataDir": "/proc/nowhere", "ranges": [[{"subnet": "::/0"}]]}}`), "/proc/nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, "a")
			for _, verb := range []string{"ADD", "DEL", "CHECK", "VERSION"} {
				var out strings.Builder
				cmd := m.command(verb, "bridge", "a", tt.stdin(), "CNI_NETNS_OVERRIDE=")
				cmd.Stdout = &out
				start := time.Now()
				err := cmd.Run()
				elapsed := time.Since(start)
				memory := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
				if elapsed > kerneltest.Slow(maxTime) || memory > maxMemory {
					t.Errorf("%s took %v and %d MB", verb, elapsed, memory>>20)
				}
				if verb != "ADD" {
					continue
				}
				if err == nil || !strings.Contains(strings.ReplaceAll(out.String(), `\"`, `"`), tt.want) || strings.Contains(out.String(), "goroutine ") {
					t.Errorf("%s printed %.300s, want %s", verb, out.String(), tt.want)
				}
			}
		})
	}
}

func reader(s string) func() io.Reader { return func() io.Reader { return strings.NewReader(s) } }

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"k%d": %d, `, i, i)
	}
	return b.String()
}
