package attach

import "github.com/fairlead/fairlead/kernel/netns"

// Namespaces finds network namespaces by their IDs. It reads the visible ones once, when the first is searched.
type Namespaces struct {
	paths map[netns.ID]string
}

// Elsewhere returns another path of the namespace that an attachment was added in, or "" if no path leads there. The
// runtime may have given a symbolic link, or have unmounted the path, while the container runs.
func (n *Namespaces) Elsewhere(r *Record) (string, error) {
	id := r.Namespace()
	if id.Cookie == 0 {
		return "", nil // the kernel uses an inode again
	}
	if n.paths == nil {
		all, err := netns.All()
		if err != nil {
			return "", err
		}
		n.paths = map[netns.ID]string{}
		for _, ns := range all {
			if id, err := ns.ID(); err == nil {
				n.paths[id] = ns.Path()
			}
			ns.Close()
		}
	}
	return n.paths[id], nil
}

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
