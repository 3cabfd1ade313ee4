package kernel

import "github.com/fairlead/fairlead/kernel/netns"

// HasLink reports whether the network namespace at a path has a link with a name. It is false if that cannot be found out.
func HasLink(path, name string) bool {
	ns, err := netns.Open(path)
	if err != nil {
		return false
	}
	defer ns.Close()
	e, err := Open(ns, Options{})
	if err != nil {
		return false
	}
	defer e.Close()
	_, err = e.Link(Container, name)
	return err == nil
}
