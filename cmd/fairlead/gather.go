package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
)

// maxProblems bounds what is reported of one plugin.
const maxProblems = 50

// gather finds every problem of a part of the file, at a path, by a check that
// returns the first: what was refused is taken for absent, and the check
// repeated. Positions are those in the file.
func (c *checked) gather(at string, data []byte, check func([]byte) error) {
	data = slices.Clone(data)
	var seen []string
	for range maxProblems {
		err := check(data)
		if err == nil {
			return
		}
		e, ok := errors.AsType[*cni.ConfigError](err)
		if !ok {
			c.problem(at, err.Error())
			return
		}
		v, found := rawjson.Find(data, e.Key)
		absent := !found || string(v.Raw) == "null"
		if absent && slices.ContainsFunc(seen, func(k string) bool { return related(k, e.Key) }) {
			return // it is our taking away that is refused
		}
		if e.Key == "" && at == "" {
			c.Problems = append(c.Problems, finding{e.Line, e.Column, "", e.Value, e.Problem}) // not JSON
			return
		}
		c.problem(below(at, e.Key), e.Problem)
		if absent || e.Key == "" {
			return
		}
		seen = append(seen, e.Key)
		data = slices.Replace(data, v.Start, v.Start+len(v.Raw), []byte("null")...)
	}
}

// related tells whether one path's absence may be the reason of a problem at
// the other: they are of one object, or one is inside the other.
func related(a, b string) bool {
	return parent(a) == parent(b) || strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
}

func parent(key string) string { return key[:max(0, strings.LastIndexAny(key, ".["))] }

// below is the path of a key of the object at a path.
func below(at, key string) string {
	switch {
	case at == "":
		return key
	case key == "":
		return at
	case key[0] == '[':
		return at + key
	}
	return at + "." + key
}
