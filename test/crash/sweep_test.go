package crash

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// tally counts the outcomes of the points of one scene, operation and kind.
type tally struct {
	Scene      string
	Verb       string
	Kind       kind
	Points     int
	Survived   int
	NotReached int `json:"NotMet"` // points that were not reached, because the order of threads differed; not part of Points
	Failures   []string
}

// learned maps each operation of a scene to the classes of its calls.
type learned map[string][]string

// learn traces an undisturbed ADD and DEL.
func (m *machine) learn() learned {
	m.T.Helper()
	l := learned{}
	add, err := m.calls("ADD", "")
	if err != nil {
		m.T.Fatalf("%s: %v", m.s.name, err)
	}
	result := m.output()
	if m.s.lacksResult() {
		result = ""
	}
	del, err := m.calls("DEL", result)
	if err != nil {
		m.T.Fatalf("%s: %v", m.s.name, err)
	}
	l["ADD"], l["DEL"] = add, del
	return l
}

func (l learned) points(s *scene) (out []point) {
	for _, verb := range []string{"ADD", "DEL"} {
		out = append(out, points(verb, l[verb], s)...)
	}
	return out
}

// selected reports whether a scene or point is selected by a part of its name: FAIRLEAD_SCENE, FAIRLEAD_POINT.
func selected(what, word string) bool { return strings.Contains(what, os.Getenv(word)) }

// sweep plays a scene's points on several machines concurrently. Half of the points are played while another container
// is attached.
func sweep(t *testing.T, s *scene, workers int, choose func([]point) []point) []tally {
	alone, withOther := make(chan point), make(chan point)
	var mu sync.Mutex
	count := map[string]*tally{}
	record := func(p point, reached bool, err error) {
		mu.Lock()
		defer mu.Unlock()
		key := p.verb + " " + string(p.kind)
		if count[key] == nil {
			count[key] = &tally{Scene: s.name, Verb: p.verb, Kind: p.kind}
		}
		c := count[key]
		switch {
		case err != nil:
			c.Points++
			c.Failures = append(c.Failures, fmt.Sprintf("%s: %v", p, err))
			t.Errorf("%s: %s\n%v", s.name, p, err)
		case reached:
			c.Points++
			c.Survived++
		default:
			c.NotReached++
		}
	}
	var first sync.Once
	t.Run("on", func(t *testing.T) {
		for w := range workers {
			t.Run(fmt.Sprint(w+1), func(t *testing.T) {
				t.Parallel()
				m := newMachine(t, s)
				first.Do(func() {
					var list []point
					defer func() { go feed(alone, withOther, list) }() // the workers end even if learning failed
					list = choose(m.learn().points(s))
				})
				m = playFrom(t, m, alone, record)
				m.attachOther()
				playFrom(t, m, withOther, record)
			})
		}
	})
	var out []tally
	for _, verb := range []string{"ADD", "DEL"} {
		for _, k := range kinds() {
			if c := count[verb+" "+string(k)]; c != nil {
				out = append(out, *c)
			}
		}
	}
	return out
}

// playFrom plays the points that it receives. It returns the machine for further points, because the machine of a point
// that failed is not clean.
func playFrom(t *testing.T, m *machine, todo <-chan point, record func(point, bool, error)) *machine {
	for p := range todo {
		reached, err := m.play(p)
		for p.orEarlier && !reached && err == nil && p.nth > 1 {
			p.nth /= 2
			reached, err = m.play(p)
		}
		if err != nil && m.other != nil {
			err = fmt.Errorf("with another container: %w", err)
		}
		record(p, reached, err)
		if err != nil {
			other := m.other != nil
			if m = newMachine(t, m.s); other {
				m.attachOther()
			}
		}
	}
	// Check the state that fingerprints omit, once for all points.
	if d := kerneltest.Diff(m.cleanSnapshot, m.snapshot()); d != "" {
		t.Errorf("%s: difference after all points:\n%s", m.s.name, d)
	}
	return m
}

// feed sends the points to the workers: every second point of a recovery to each of the two channels. A single point that
// FAIRLEAD_POINT selects goes to both.
func feed(alone, withOther chan<- point, list []point) {
	both := os.Getenv("FAIRLEAD_POINT") != ""
	for i, todo := range []chan<- point{alone, withOther} {
		nth := map[recovery]int{} // by recovery, so that each one meets both
		for _, p := range list {
			if selected(p.String(), "FAIRLEAD_POINT") && (both || nth[p.then]%2 == i) {
				todo <- p
			}
			nth[p.then]++
		}
		close(todo)
	}
}
