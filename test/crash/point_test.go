package crash

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// kind is the failure that is injected at a point.
type kind string

const (
	kindKill  kind = "kill"  // killed before the call has an effect
	kindError kind = "error" // the call has no effect and returns an error
	kindShort kind = "short" // half is written, and the call returns that length
	kindCut   kind = "cut"   // half is written, then the process is killed
	kindClock kind = "clock" // the time of day jumps at this call
)

func kinds() []kind { return []kind{kindKill, kindError, kindShort, kindCut, kindClock} }

// tenYears is the distance by which the clock jumps.
const tenYears = 10 * 365 * 24 * time.Hour

// tick is slightly longer than the kernel's resolution of a process's start time.
const tick = 12 * time.Millisecond

// recovery is the next step of a runtime or of an administrator.
type recovery string

const (
	byDel recovery = "DEL"
	byGC  recovery = "GC"
	byAdd recovery = "ADD"
)

// point is one failure at one call, and the recovery from it.
type point struct {
	verb  string // the operation: ADD or DEL
	kind  kind
	class string // the call's class
	nth   int    // its index within the class
	errno unix.Errno
	shift time.Duration
	then  recovery

	orEarlier bool // if the call is not reached, an earlier one of its class will do
}

func (p point) String() string {
	s := fmt.Sprintf("%s: %s at %s #%d", p.verb, p.kind, p.class, p.nth)
	switch p.kind {
	case kindError:
		s += " " + unix.ErrnoName(p.errno)
	case kindClock:
		s += " " + p.shift.String()
	}
	return s + ", then " + string(p.then)
}

// action returns the tracer's action at the point's call.
func (p point) action() action {
	switch p.kind {
	case kindError:
		return action{fail: p.errno, last: true}
	case kindShort:
		return action{cut: true, last: true}
	case kindCut:
		return action{cut: true, kill: true, after: true, last: true}
	case kindClock:
		return action{setTime: p.shift, last: true}
	}
	return action{kill: true, last: true}
}

// points returns the points of an operation, given its calls.
func points(verb string, calls []string, s *scene) (out []point) {
	then := []recovery{byDel, byGC, byAdd}
	if s.lacksGC {
		then = []recovery{byDel, byAdd}
	}
	if s.chained { // no runtime repeats the ADD of one plugin in the middle of a list
		then = []recovery{byDel, byGC}
	}
	add := func(p point) {
		p.verb, p.then = verb, then[len(out)%len(then)]
		out = append(out, p)
	}
	seen := map[string]int{}
	for _, c := range calls {
		seen[c]++
		p := point{class: c, nth: seen[c]}
		p.kind = kindKill
		add(p)
		program, call, external := strings.Cut(c, ": ")
		if !external {
			program, call = "", c
		}
		name, what, _ := strings.Cut(call, " ")
		p.kind = kindError
		for _, p.errno = range errnos(program, name, what) {
			add(p)
		}
		p.errno = 0
		if !external && (name == "write" || name == "pwrite64") && what != "socket" && what != "pipe" {
			p.kind = kindShort
			add(p)
			p.kind = kindCut
			add(p)
		}
		// Every fourth call gets one jump forward and one back, because a program reads the time only a few times.
		if len(out)%4 == 0 {
			p.kind = kindClock
			for _, p.shift = range []time.Duration{tenYears, -tenYears} {
				add(p)
			}
		}
	}
	return out
}

// calls returns the classes of the calls of an undisturbed operation.
func (m *machine) calls(verb, result string) ([]string, error) {
	var list []string
	p := m.request(verb, result)
	p.at = func(c *call) action {
		list = append(list, c.class())
		return action{}
	}
	e, err := trace(p)
	if err == nil && e.code != 0 {
		err = fmt.Errorf("%s, traced: exit code %d: %s", verb, e.code, m.output())
	}
	return list, err
}

// inject runs an operation and injects the point's failure.
func (m *machine) inject(p point, result string) (outcome, error) {
	req := m.request(p.verb, result)
	seen := 0
	req.at = func(c *call) action {
		if c.class() != p.class {
			return action{}
		}
		if seen++; seen < p.nth {
			return action{}
		}
		return p.action()
	}
	req.hideVDSO = p.kind == kindClock
	return trace(req)
}

// play tries a point. It reports whether the point was reached, because the order of threads differs between runs. It
// returns an error if an operation failed or left objects behind.
func (m *machine) play(p point) (reached bool, err error) {
	result := ""
	if p.verb == "DEL" {
		if result, err = m.run("ADD", ""); err != nil {
			return false, err
		}
		if m.s.lacksResult() {
			result = ""
		}
	}
	e, err := m.inject(p, result)
	if err != nil {
		return false, err
	}
	output := m.output()
	switch {
	case e.hung:
		return true, fmt.Errorf("%s did not end: %s", p.verb, output)
	case panicked(output):
		return true, fmt.Errorf("%s crashed: %s", p.verb, output)
	}
	if err := m.checkOutcome(p, e, output); err != nil {
		return true, err
	}
	if err := m.checkClean(); err != nil {
		return true, fmt.Errorf("exit code %d, %q: %w", e.code, output, err)
	}
	return e.hit != nil, nil
}

// checkClean compares the machine's state with the clean state.
func (m *machine) checkClean() error {
	if d := m.leftovers(); d != "" {
		return fmt.Errorf("the machine differs from its clean state:\n%s", d)
	}
	return nil
}

// checkOutcome checks how the operation ended and runs the recovery.
func (m *machine) checkOutcome(p point, e outcome, output string) error {
	if e.code == 0 && p.verb == "DEL" {
		if mayIgnore(p) {
			return m.recover(byDel, "")
		}
		return nil // nothing may be left
	}
	if e.code == 0 {
		if err := m.checkComplete(output); err != nil {
			return fmt.Errorf("ADD succeeded, and %w", err)
		}
		return m.recover(p.then, output)
	}
	if !e.killed && e.code > 0 && !m.s.runtime() && !runtimeFailed(output) {
		if err := checkError(output); err != nil && !(strings.HasSuffix(p.class, "stdout") && strings.Contains(output, "write the answer to stdout")) {
			return err
		}
	}
	return m.recover(p.then, "")
}

// mayIgnore reports whether DEL may succeed despite the failure. A runtime does not report that it could not remove its
// cache file; the next DEL or GC removes it.
func mayIgnore(p point) bool {
	return p.kind == kindError && strings.HasPrefix(p.class, "unlinkat $WORK/cache/results/")
}

// checkComplete checks that an attachment is complete: CHECK succeeds, and every address of the result is allocated.
func (m *machine) checkComplete(result string) error {
	if !m.s.lacksCheck() {
		if _, err := m.run("CHECK", result); err != nil {
			return err
		}
	}
	if n, want := m.allocated(), addresses(result); !m.s.chained && m.s.storesAddresses() && n != want {
		return fmt.Errorf("%d addresses are allocated, and the result has %d: %s", n, want, result)
	}
	return nil
}

func (m *machine) recover(then recovery, result string) error {
	if m.s.lacksResult() {
		result = ""
	}
	switch then {
	case byGC:
		time.Sleep(tick) // anything created in the tick in which a GC began counts as newer than the GC
		_, err := m.run("GC", "")
		return err
	case byAdd:
		if err := m.repeatAdd(); err != nil {
			return err
		}
	}
	_, err := m.run("DEL", result)
	return err
}

// repeatAdd repeats an interrupted ADD. If that ADD had completed, its attachment exists and has to be deleted first,
// as the error message says.
func (m *machine) repeatAdd() error {
	result, err := m.run("ADD", "")
	if err != nil && (strings.Contains(err.Error(), "is already attached") || strings.Contains(err.Error(), "duplicate allocation is not allowed")) {
		if _, err = m.run("DEL", ""); err == nil {
			result, err = m.run("ADD", "")
		}
	}
	if err != nil {
		return fmt.Errorf("repeat ADD: %w", err)
	}
	if err := m.checkComplete(result); err != nil {
		return fmt.Errorf("repeat ADD: %w", err)
	}
	return nil
}

// panicked reports whether Fairlead's code panicked. The Go runtime's "fatal error" when the kernel denies it a thread
// or a poller is not a panic.
func panicked(output string) bool { return strings.Contains(output, "panic: ") }

// runtimeFailed reports whether the Go runtime ended the program.
func runtimeFailed(output string) bool {
	return strings.Contains(output, "fatal error: ") || strings.Contains(output, "runtime: ")
}

// checkError checks that a plugin's output is an error as the CNI protocol defines it.
func checkError(output string) error {
	var e struct {
		Code int
		Msg  string
	}
	at := strings.LastIndex(output, "\n{") + 1
	if at < 0 || json.Unmarshal([]byte(output[at:]), &e) != nil || e.Code == 0 || e.Msg == "" {
		return fmt.Errorf("it failed without an error on stdout: %q", output)
	}
	return nil
}

// lacksCheck reports whether the scene's CNI version has no CHECK.
func (s *scene) lacksCheck() bool {
	return strings.Contains(s.conf, `"0.3.1"`) || strings.Contains(s.conf, `"0.1.0"`)
}

// lacksResult reports whether the caller passes no previous result: a runtime caches results itself, and a chained
// plugin's configuration contains one.
func (s *scene) lacksResult() bool { return s.runtime() || s.chained }

// storesAddresses reports whether all addresses of the scene are stored in a directory.
func (s *scene) storesAddresses() bool {
	return !slices.ContainsFunc([]string{`"dhcp"`, `"static"`, `"loopback"`, `"useInterfaceNetwork"`}, func(t string) bool { return strings.Contains(s.conf, t) })
}
