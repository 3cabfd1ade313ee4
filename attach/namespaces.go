package attach

import "github.com/fairlead/fairlead/kernel/netns"

// Namespaces finds network namespaces by their IDs. It reads the visible ones once, when the first is searched.
type Namespaces struct {
	paths map[netns.ID]string
}

// At returns a path of a network namespace, or "" if no path leads there.
func (n *Namespaces) At(id netns.ID) (_ string, err error) {
	if n.paths == nil {
		if n.paths, err = netns.Paths(); err != nil {
			return "", err
		}
	}
	return n.paths[id], nil
}

// Elsewhere returns another path of the namespace that an attachment was added in, or "" if no path leads there. The
// runtime may have given a symbolic link, or have unmounted the path, while the container runs.
func (n *Namespaces) Elsewhere(r *Record) (string, error) { return n.At(r.Namespace()) }

// State is the record's State, except that an attachment whose namespace exists elsewhere is not gone.
func (n *Namespaces) State(r *Record) (string, error) {
	s := r.State()
	if s != StateGone {
		return s, nil
	}
	path, err := n.Elsewhere(r)
	if path != "" {
		s = StateOK
	}
	return s, err
}

// Follow gives a record the present path of its namespace if the namespace has left the path of its ADD. The stored record
// keeps that one.
func (n *Namespaces) Follow(r *Record) error {
	if r.State() != StateGone {
		return nil
	}
	path, err := n.Elsewhere(r)
	if path != "" {
		r.Netns = path
	}
	return err
}
