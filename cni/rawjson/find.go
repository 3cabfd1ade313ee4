package rawjson

import (
	"bytes"
	"strconv"
	"strings"
)

// Find returns the value at a path like "plugins[0].ipam.ranges[0][0].subnet". If there is none, it returns the nearest
// enclosing value, and found is false. A key may contain dots: the longest match is used.
func Find(data []byte, path string) (v Value, found bool) {
	v = Value{Raw: bytes.TrimSpace(data), Start: skipSpace(data, 0)}
	for path != "" {
		next, rest, ok := step(v, path)
		if !ok {
			return v, false
		}
		v, path = next, rest
	}
	return v, true
}

// step goes one level down and returns the rest of the path.
func step(v Value, path string) (Value, string, bool) {
	if strings.HasPrefix(path, "[") {
		return stepIndex(v, path)
	}
	members, err := Members(v.Raw)
	if err != nil {
		return v, path, false
	}
	var best Member
	rest, ok := path, false
	for _, m := range members {
		r, fits := cutKey(path, m.Key)
		// Of repeated keys decoding keeps the last.
		if fits && (!ok || len(r) <= len(rest)) {
			best, rest, ok = m, r, true
		}
	}
	best.Value.Start += v.Start
	return best.Value, rest, ok
}

func stepIndex(v Value, path string) (Value, string, bool) {
	end := strings.IndexByte(path, ']')
	if end < 0 {
		return v, path, false
	}
	n, err := strconv.Atoi(path[1:end])
	elements, scanErr := Elements(v.Raw)
	if err != nil || scanErr != nil || n < 0 || n >= len(elements) {
		return v, path, false
	}
	e := elements[n]
	e.Start += v.Start
	return e, strings.TrimPrefix(path[end+1:], "."), true
}

// cutKey removes key from the start of path, ignoring case as encoding/json does.
func cutKey(path, key string) (rest string, ok bool) {
	if key == "" || len(path) < len(key) || !strings.EqualFold(path[:len(key)], key) {
		return path, false
	}
	switch rest = path[len(key):]; {
	case rest == "" || rest[0] == '[':
		return rest, true
	case rest[0] == '.':
		return rest[1:], true
	}
	return path, false
}

// Position converts an offset to a line and a column, both from 1, the column in bytes.
func Position(data []byte, offset int) (line, column int) {
	offset = max(0, min(offset, len(data)))
	before := data[:offset]
	return bytes.Count(before, []byte{'\n'}) + 1, offset - bytes.LastIndexByte(before, '\n')
}
