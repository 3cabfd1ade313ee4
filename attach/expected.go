package attach

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
)

// Objects returns the objects of all parts. The record of an attachment that the reference plugins created has none: it
// lists what to remove.
func (r *Record) Objects() (kernel.Objects, error) {
	if r.Adopted {
		return nil, nil
	}
	list, _, err := r.split(func(Part) bool { return true })
	return list, err
}

// Expected returns the objects that a plugin created with a configuration, which a hash identifies, and the objects of
// later plugins of the list that change these. same is false if the configuration has changed since, or if its hash is
// unknown. Then own are the objects of the plugin's earlier configuration.
func (r *Record) Expected(plugin, conf string) (own, later kernel.Objects, same bool, err error) {
	own, later, err = r.split(func(p Part) bool { return p.Plugin == plugin && p.Conf == conf && conf != "" })
	if err != nil || own != nil {
		return own, later, true, err
	}
	own, later, err = r.split(func(p Part) bool { return p.Plugin == plugin })
	return own, later, false, err
}

// HasResult reports whether a result names the same interfaces, addresses and routes as the one that the newest part
// returned.
func (r *Record) HasResult(got *cni.Result) bool {
	if len(r.Parts) == 0 {
		return false
	}
	have, err := r.lastResult()
	return err == nil && have != nil &&
		slices.EqualFunc(have.Interfaces, got.Interfaces, func(a, b cni.Interface) bool {
			return a.Name == b.Name && a.Mac == b.Mac && a.Sandbox == b.Sandbox
		}) &&
		slices.EqualFunc(have.IPs, got.IPs, func(a, b cni.IP) bool { return a.Address == b.Address && a.Gateway == b.Gateway }) &&
		slices.EqualFunc(have.Routes, got.Routes, sameHop)
}

func sameHop(a, b cni.Route) bool { return a.Dst == b.Dst && a.GW == b.GW }

// lastResult returns the result of the newest part. Parts often have the same, which is decoded once.
func (r *Record) lastResult() (*cni.Result, error) {
	last := len(r.Parts) - 1
	for r.repeats(last) {
		last--
	}
	return r.Parts[last].Result.Get()
}

// repeats reports whether a part has the same result as the part before it.
func (r *Record) repeats(i int) bool {
	return i > 0 && r.Parts[i].Result.raw != nil && bytes.Equal(r.Parts[i].Result.raw, r.Parts[i-1].Result.raw)
}

// ChangedByOthers returns what plugins of other software changed, as far as the results tell: each part's own, and the
// final one of the list, which may be nil. These are attributes of the container's interfaces, and routes of the
// container that the final result lacks.
func (r *Record) ChangedByOthers(final *cni.Result) (out kernel.Objects) {
	type attrs struct {
		mac string
		mtu int // bytes
	}
	current := map[string]attrs{}
	step := func(res *cni.Result, part *Part) {
		for _, i := range res.Interfaces {
			was, known := current[i.Name]
			if i.Sandbox == "" {
				continue
			}
			current[i.Name] = attrs{i.Mac, i.MTU}
			set := kernel.LinkSettings{}
			if known && i.Mac != was.mac {
				set.MAC = i.Mac
			}
			if known && i.MTU != was.mtu {
				set.MTU = i.MTU
			}
			if set != (kernel.LinkSettings{}) && !part.setsLink(i.Name) {
				out = append(out, &kernel.LinkAttrs{Link: i.Name, Set: set})
			}
		}
	}
	for i := range r.Parts {
		p := &r.Parts[i]
		if r.repeats(i) {
			continue // nothing changed
		}
		if res, err := p.Result.Get(); err == nil && res != nil {
			step(res, p)
		}
	}
	if final != nil {
		step(final, nil)
		out = append(out, r.droppedRoutes(final.Routes)...)
	}
	return out
}

// droppedRoutes returns the container's routes that a part's result has and the final result lacks: a plugin of other
// software removed or replaced them.
func (r *Record) droppedRoutes(final []cni.Route) (out kernel.Objects) {
	var res *cni.Result
	for i := range r.Parts {
		p := &r.Parts[i]
		if !r.repeats(i) {
			res, _ = p.Result.Get()
		}
		if res == nil || slices.EqualFunc(res.Routes, final, sameHop) {
			continue
		}
		list, _ := p.Objects.Get() // if another version of Fairlead wrote it, it is not compared either
		for _, o := range kernel.Of[*kernel.Route](list) {
			if o.In == kernel.Container && hasRoute(res.Routes, o) && !hasRoute(final, o) {
				out = append(out, &kernel.AbsentRoute{Route: *o})
			}
		}
	}
	return out
}

// hasRoute reports whether a result has the route. In a result, a route without a gateway uses the address's gateway, and
// an unspecified gateway means none.
func hasRoute(list []cni.Route, o *kernel.Route) bool {
	return slices.ContainsFunc(list, func(r cni.Route) bool {
		via := o.Via == r.GW || !r.GW.IsValid() || r.GW.IsUnspecified() && !o.Via.IsValid()
		return via && r.Dst.Masked() == o.Dst.Masked()
	})
}

// setsLink reports whether the part's plugin changed attributes of a link. A nil part is that of other software.
func (p *Part) setsLink(name string) bool {
	if p == nil {
		return false
	}
	list, _ := p.Objects.Get() // another version of Fairlead may have written it: then the result tells
	return slices.ContainsFunc(kernel.Of[*kernel.LinkAttrs](list), func(l *kernel.LinkAttrs) bool { return l.Link == name })
}

// changes returns the part's objects that may change those of earlier parts.
func (p *Part) changes() (kernel.Objects, error) {
	switch {
	case p.Objects.raw == nil:
		return p.Objects.Get()
	case p.changingRead:
		return p.changing, nil
	}
	list, err := kernel.ReadChanges(p.Objects.raw)
	if err != nil {
		return nil, fmt.Errorf("read the record of the attachment: %w", err)
	}
	p.changing, p.changingRead = list, true
	return list, nil
}

// split returns the objects of the parts that match, and those that change them, of the parts after the first of these.
func (r *Record) split(match func(Part) bool) (own, later kernel.Objects, err error) {
	for i := range r.Parts {
		p := &r.Parts[i]
		ours := match(*p)
		if !ours && own == nil {
			continue // an earlier part
		}
		if !ours {
			list, err := p.changes()
			if err != nil {
				return nil, nil, err
			}
			later = append(later, list...)
			continue
		}
		list, err := p.Objects.Get()
		if err != nil {
			return nil, nil, err
		}
		own = append(own, list...)
		if own == nil {
			own = kernel.Objects{}
		}
	}
	return own, later, nil
}
