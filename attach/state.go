package attach

// States of an attachment.
const (
	StateOK          = "ok"
	StateGone        = "namespace gone"
	StateAdding      = "adding"
	StateInterrupted = "interrupted" // its ADD was killed before it ended
)

// State returns the state of the attachment: one of StateOK, StateGone, StateAdding and StateInterrupted.
func (r *Record) State() string {
	for _, p := range r.Parts {
		switch {
		case p.Adding():
			return StateAdding
		case !p.Done:
			return StateInterrupted
		}
	}
	if !r.HasNetns() {
		return StateGone
	}
	return StateOK
}
