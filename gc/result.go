package gc

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/fairlead/fairlead/libcni"
)

// cacheWarning takes the warnings of the cache: unreadable files are for removeResults, everything else is an error.
func (c *collector) cacheWarning(msg string, err error) {
	e, ok := errors.AsType[*libcni.CacheError](err)
	if !ok || !e.Spoiled {
		c.fail(fmt.Errorf("%s: %w", msg, err))
		return
	}
	if !slices.ContainsFunc(c.corrupt, func(s *libcni.CacheError) bool { return s.File == e.File }) {
		c.corrupt = append(c.corrupt, e)
	}
}

// removeResults removes unreadable files from the cache. It skips a young file, which a runtime may still be writing.
func (c *collector) removeResults() {
	for _, s := range c.corrupt {
		old, err := s.Old(minAge)
		if err == nil && old && !c.DryRun {
			err = os.Remove(s.File)
		}
		switch {
		case errors.Is(err, os.ErrNotExist): // its attachment was deleted
		case err != nil:
			c.fail(fmt.Errorf("remove a result that cannot be read: %w", err))
		case old:
			c.out.Results = append(c.out.Results, Result{s.File, s.Err.Error()})
		default:
			c.out.Skipped = append(c.out.Skipped, fmt.Sprintf("%v; it is younger than %v", s, minAge))
		}
	}
}

// removeDamaged removes damaged records of attachments that are gone. Doctor reports those of attachments that may exist.
func (c *collector) removeDamaged() {
	_, damaged, err := c.dir.Scan("") // again: an ADD may have replaced one meanwhile
	c.fail(err)
	for _, x := range damaged {
		if c.used == nil || x.Err != nil || x.Owner.ContainerID == "" || c.inUse(x.Owner.Tag()) {
			continue
		}
		if !c.DryRun {
			if err := c.dir.Drop(x.Owner); err != nil {
				c.fail(fmt.Errorf("remove a damaged record: %w", err))
				continue
			}
		}
		c.out.Results = append(c.out.Results, Result{x.File, "it is not the record of an attachment"})
	}
}
