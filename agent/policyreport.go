package agent

import "time"

// policyReport decides what other nodes learn about network policy on this node.
type policyReport struct {
	now func() string // why policy is not in force, or ""; nil: it is not enabled

	since time.Time // when that began
	why   string    // what is published
}

// problem returns what to publish: nothing for a problem that lasts less than unreadyFor, as that of an agent that
// starts. The text stays the same until the problem ends, because each change is an event for all nodes.
func (r *policyReport) problem() string {
	why := ""
	if r.now != nil {
		why = r.now()
	}
	switch {
	case why == "":
		r.since, r.why = time.Time{}, ""
	case r.since.IsZero():
		r.since = time.Now()
	case r.why == "" && time.Since(r.since) >= unreadyFor:
		r.why = why
	}
	return r.why
}
