package churn

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/cni"
)

type state int

const (
	absent   state = iota
	adding         // its ADD is running
	attached       // its ADD succeeded
	unknown        // an operation failed or was killed: DEL is due
)

// attachment is one container on one network. Its lock serializes operations on it, as a runtime does.
type attachment struct {
	sync.Mutex
	net    *network
	number int // of the container
	ifname string
	netns  string

	state state // guarded by the model
	ips   []string
	peak  int // while its ADD runs: the most others of its network that may have had an address at a time
}

func (a *attachment) id() string { return fmt.Sprintf("container-%d", a.number) }

func (a *attachment) String() string { return a.net.list.Name + "/" + a.id() }

// model holds the expected state and reports violations.
type model struct {
	sync.Mutex
	all        []*attachment
	owners     map[string]*attachment // by network and address
	counts     map[string]int
	violations []string
	events     []event // the most recent ones, to explain a failure
}

// event is the beginning or end of a step.
type event struct {
	at      time.Time
	subject string // NETWORK/CONTAINER, or NETWORK
	what    string
}

const events = 4096

// record records an event; the returned function records the end.
func (m *model) record(subject, what string) (end func(error)) {
	add := func(what string) {
		m.Lock()
		defer m.Unlock()
		m.events = append(m.events, event{time.Now(), subject, what})
		if len(m.events) > events {
			m.events = m.events[1:]
		}
	}
	add(what)
	return func(err error) {
		switch {
		case err == nil:
			add(what + " done")
		case errors.Is(err, errKilled):
			add(what + " killed")
		default:
			add(what + " failed")
		}
	}
}

// history returns the recent events of an attachment and the GCs of its network.
func (m *model) history(subject string) string {
	network, _, _ := strings.Cut(subject, "/")
	var lines []string
	for _, e := range m.events {
		if e.subject == subject || e.subject == network {
			lines = append(lines, fmt.Sprintf("    %s %s %s", e.at.Format("05.000"), e.subject, e.what))
		}
	}
	return strings.Join(lines[max(0, len(lines)-16):], "\n")
}

func (m *model) count(what string) {
	m.Lock()
	defer m.Unlock()
	m.counts[what]++
}

// fail reports a violated invariant of an attachment or a network.
func (m *model) fail(subject, format string, args ...any) {
	m.Lock()
	defer m.Unlock()
	m.violations = append(m.violations, subject+": "+fmt.Sprintf(format, args...)+"\n"+m.history(subject))
}

func (m *model) failed() bool {
	m.Lock()
	defer m.Unlock()
	return len(m.violations) > 0
}

// setState sets an attachment's state. Only an attachment whose ADD succeeded has addresses.
func (m *model) setState(a *attachment, s state, r *cni.Result) {
	m.Lock()
	defer m.Unlock()
	for _, ip := range a.ips {
		delete(m.owners, ip)
	}
	a.state, a.ips = s, nil
	m.notePeaks(a, s == adding)
	if r == nil {
		return
	}
	for _, ip := range r.IPs {
		key := a.net.list.Name + " " + ip.Address.Addr().String()
		if b := m.owners[key]; b != nil {
			m.violations = append(m.violations, fmt.Sprintf("%s was allocated to %v while %v had it\n%s\n%s", key, a, b, m.history(a.String()), m.history(b.String())))
		}
		m.owners[key] = a
		a.ips = append(a.ips, key)
	}
}

// notePeaks updates the peaks of the network's running ADDs after a change of an attachment. It begins a new peak for
// the attachment if its own ADD begins.
func (m *model) notePeaks(changed *attachment, begins bool) {
	if changed.net.capacity == 0 {
		return
	}
	held := 0
	for _, a := range m.all {
		if a.net == changed.net && a.state != absent {
			held++
		}
	}
	if begins {
		changed.peak = 0
	}
	for _, a := range m.all {
		if a.net == changed.net && a.state == adding {
			a.peak = max(a.peak, held-1)
		}
	}
}

// mayBeFull reports whether the addresses of an attachment's network may have run out during its ADD. An attachment
// counts as having an address from the beginning of its ADD until its DEL is done. With before, its own state before
// the ADD, its earlier addresses count, too.
func (m *model) mayBeFull(a *attachment, before state) bool {
	m.Lock()
	defer m.Unlock()
	peak := a.peak
	if before == unknown {
		peak++
	}
	return peak >= a.net.capacity
}

// stateOf returns an attachment's state.
func (m *model) stateOf(a *attachment) state {
	m.Lock()
	defer m.Unlock()
	return a.state
}

// valid returns the attachments that a runtime would list now for a network.
func (m *model) valid(n *network) (list []cni.Attachment) {
	m.Lock()
	defer m.Unlock()
	for _, a := range m.all {
		if a.net == n && (a.state == attached || a.state == adding) {
			list = append(list, cni.Attachment{ContainerID: a.id(), IfName: a.ifname})
		}
	}
	return list
}

// allocated returns the number of allocated addresses of a network.
func (m *model) allocated(n *network) (count int) {
	m.Lock()
	defer m.Unlock()
	for _, a := range m.owners {
		if a.net == n {
			count++
		}
	}
	return count
}
