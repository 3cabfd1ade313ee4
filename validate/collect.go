package validate

import (
	"errors"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
)

// maxProblems limits the problems that are reported of one plugin.
const maxProblems = 50

// collect finds every problem in the part of the file at a path, with a check that returns only the first. It replaces a
// rejected value by null, as if it were absent, and repeats the check. Positions refer to the file.
func (c *checker) collect(at string, data []byte, check func([]byte) error) {
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
			return // the check complains of the null
		}
		c.problem(below(at, e.Key), e.Problem)
		if absent || e.Key == "" {
			return
		}
		seen = append(seen, e.Key)
		data = slices.Replace(data, v.Start, v.Start+len(v.Raw), []byte("null")...)
	}
}

// related reports whether the absence of one path may be the cause of a problem at the other: they belong to one object,
// or one contains the other.
func related(a, b string) bool {
	return parent(a) == parent(b) || strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
}

func parent(key string) string { return key[:max(0, strings.LastIndexAny(key, ".["))] }

// below returns the path of a key of the object at a path.
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
