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

// Offset is the reverse of Position. It returns -1 if there is no such line.
func Offset(data []byte, line, column int) int {
	offset := 0
	for range line - 1 {
		end := bytes.IndexByte(data[offset:], '\n')
		if end < 0 {
			return -1
		}
		offset += end + 1
	}
	return offset + column - 1
}

// PathAt returns the path, as Find reads it, of the value that starts at an offset, or else of the innermost value around
// the offset. The whole document has the path "".
func PathAt(data []byte, offset int) (path string) {
	v := Value{Raw: bytes.TrimSpace(data), Start: skipSpace(data, 0)}
	for v.Start != offset {
		name, inner, ok := v.child(offset)
		if !ok {
			break
		}
		if path != "" && name[0] != '[' {
			path += "."
		}
		path, v = path+name, inner
	}
	return path
}

// child returns the key or the index of the value around an offset.
func (v Value) child(offset int) (name string, inner Value, ok bool) {
	within := func(c Value) bool {
		inner = Value{c.Raw, c.Start + v.Start}
		return inner.Start <= offset && offset < inner.Start+len(inner.Raw)
	}
	members, err := Members(v.Raw)
	for _, m := range members {
		if err == nil && within(m.Value) {
			return m.Key, inner, true
		}
	}
	elements, err := Elements(v.Raw)
	for i, e := range elements {
		if err == nil && within(e) {
			return "[" + strconv.Itoa(i) + "]", inner, true
		}
	}
	return "", Value{}, false
}
