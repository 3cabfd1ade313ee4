package agent

import (
	"testing"
	"time"
)

// TestDebounce checks that kicks close together cause one reconciliation, and that a stream of kicks does not delay it.
func TestDebounce(t *testing.T) {
	t.Parallel()
	p := newDebouncer()
	began := time.Now()
	looks := 0
	for time.Since(began) < time.Second {
		p.kick()
		select {
		case <-p.due():
			p.done()
			looks++
		case <-time.After(5 * time.Millisecond):
		}
	}
	if looks < 4 || looks > 11 {
		t.Errorf("%d reconciliations in a second of kicks, want about ten", looks)
	}
	p.done()
	at := time.Now()
	p.kick()
	p.kick()
	<-p.due()
	p.done()
	if took := time.Since(at); took < quiet {
		t.Errorf("due %v after the last reconciliation, want at least %v", took, quiet)
	}
	select {
	case <-p.due():
		t.Error("due again without a kick")
	case <-time.After(3 * quiet):
	}
	p.last = time.Now().Add(-rest)
	p.kick()
	if first := p.first; !p.prompt || first.IsZero() {
		t.Error("a kick after a rest is not prompt")
	}
	p.kick()
	<-p.due()
	if p.done(); p.prompt {
		t.Error("a kick right after a reconciliation is prompt")
	}
}
