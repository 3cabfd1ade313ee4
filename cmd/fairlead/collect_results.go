package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/fairlead/fairlead/libcni"
)

// collectedResult is a file of the runtimes' cache that nobody can read: a runtime
// that writes in place was killed.
type collectedResult struct {
	File   string `json:"file"`
	Reason string `json:"reason"`
}

// warned takes what the cache complains of: a spoiled file is for results, and all
// else is an error.
func (c *collector) warned(msg string, err error) {
	e, ok := errors.AsType[*libcni.CacheError](err)
	if !ok || !e.Spoiled {
		c.fail(fmt.Errorf("%s: %w", msg, err))
		return
	}
	if !slices.ContainsFunc(c.spoiled, func(s *libcni.CacheError) bool { return s.File == e.File }) {
		c.spoiled = append(c.spoiled, e)
	}
}

// results removes spoiled files. A young one may be half written; then it is left.
func (c *collector) results() {
	for _, s := range c.spoiled {
		old, err := s.Old(strangerAge)
		if err == nil && old && !c.dry {
			err = os.Remove(s.File)
		}
		switch {
		case errors.Is(err, os.ErrNotExist): // its attachment was deleted
		case err != nil:
			c.fail(fmt.Errorf("remove a result that cannot be read: %w", err))
		case old:
			c.out.Results = append(c.out.Results, collectedResult{s.File, s.Err.Error()})
		default:
			c.out.Untouched = append(c.out.Untouched, fmt.Sprintf("%v; it is younger than %v", s, strangerAge))
		}
	}
}
