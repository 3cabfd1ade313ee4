package attach

// States of an attachment.
const (
	StateOK          = "ok"
	StateGone        = "namespace gone"
	StateAdding      = "adding"
	StateInterrupted = "interrupted" // its ADD was killed before it ended
	StateStaged      = "staged"      // the runtime has not moved the link into the container yet
)

// Exists reports whether an attachment in a state exists, or will.
func Exists(state string) bool {
	return state == StateOK || state == StateAdding || state == StateStaged
}

// State returns the state of the attachment: one of StateOK, StateGone, StateAdding, StateInterrupted and StateStaged.
func (r *Record) State() string {
	for _, p := range r.Parts {
		switch {
		case p.Adding():
			return StateAdding
		case !p.Done:
			return StateInterrupted
		}
	}
	switch {
	case r.Staged:
		return StateStaged
	case !r.HasNetns():
		return StateGone
	}
	return StateOK
}
