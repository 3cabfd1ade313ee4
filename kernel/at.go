package kernel

import "github.com/fairlead/fairlead/kernel/netns"

// At calls a function with an engine whose container namespace is the one at a path. It returns the function's error, or
// an error if the namespace or the engine cannot be opened.
func At(path string, do func(*Engine) error) error {
	ns, err := netns.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	e, err := Open(ns, Options{})
	if err != nil {
		return err
	}
	defer e.Close()
	return do(e)
}

// HasLink reports whether the network namespace at a path has a link with a name. It is false if that cannot be found out.
func HasLink(path, name string) bool {
	return At(path, func(e *Engine) error {
		_, err := e.Link(Container, name)
		return err
	}) == nil
}
