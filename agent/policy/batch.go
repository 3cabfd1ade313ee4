package policy

import (
	"maps"
	"slices"
)

// Batch runs f, which sets many objects. The chains of this node's endpoints follow at the end, once for each endpoint: a
// chain has the rules of all policies that select the endpoint, so with each policy it would take as long as all before it.
// A Batch within a Batch is a part of it.
func (c *Compiler) Batch(f func()) {
	if c.batch != nil {
		f()
		return
	}
	c.batch = map[string]bool{}
	f()
	touched := c.batch
	c.batch = nil
	c.updateProfiles(touched, false)
}

// updateProfiles updates the chains of endpoints, now or at the end of a batch. No chain may refer to a deleted policy.
func (c *Compiler) updateProfiles(touched map[string]bool, deleted bool) {
	if c.batch != nil {
		maps.Copy(c.batch, touched)
		if !deleted {
			return
		}
		touched, c.batch = c.batch, map[string]bool{}
	}
	for _, key := range slices.Sorted(maps.Keys(touched)) {
		if l := c.local[key]; l != nil {
			c.setProfiles(l, c.profilesOf(l.endpoint))
		}
	}
}
