// Package rawjson reads JSON as it was written: members of objects in order, with their positions, and edits that keep
// all other bytes. Runtimes pass configurations on this way, so that unknown keys reach the plugin unchanged.
package rawjson

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Value is one value in a document.
type Value struct {
	Raw   []byte // the value as written, without surrounding space
	Start int    // its offset in the scanned bytes
}

// Member is a key of an object and its value.
type Member struct {
	Key      string // decoded
	KeyStart int    // offset of the key's opening quote
	Value
}

var errShort = errors.New("unexpected end of JSON input")

// Members returns the members of an object in order, with duplicates. It finds the ends of values without checking
// them.
func Members(data []byte) ([]Member, error) {
	var list []Member
	_, err := scan(data, 0, '{', '}', func(i int) (int, error) {
		m, next, err := member(data, i)
		list = append(list, m)
		return next, err
	})
	return list, err
}

// Elements returns the elements of an array.
func Elements(data []byte) ([]Value, error) {
	var list []Value
	_, err := scan(data, 0, '[', ']', func(i int) (int, error) {
		next, err := skipValue(data, i)
		if err == nil {
			list = append(list, Value{Raw: data[i:next], Start: i})
		}
		return next, err
	})
	return list, err
}

// scan reads the object or array at i and returns its end. It calls item at the start of each comma-separated item;
// item returns the item's end.
func scan(data []byte, i int, open, end byte, item func(int) (int, error)) (int, error) {
	i = skipSpace(data, i)
	if i >= len(data) {
		return i, errShort
	}
	if data[i] != open {
		return i, fmt.Errorf("invalid character %q at offset %d: want %q", data[i], i, open)
	}
	i = skipSpace(data, i+1)
	if i < len(data) && data[i] == end {
		return i + 1, nil
	}
	for i < len(data) {
		next, err := item(i)
		if err != nil {
			return i, err
		}
		i = skipSpace(data, next)
		switch {
		case i >= len(data):
			return i, errShort
		case data[i] == end:
			return i + 1, nil
		case data[i] != ',':
			return i, fmt.Errorf("invalid character %q at offset %d: want ',' or %q", data[i], i, end)
		}
		i = skipSpace(data, i+1)
	}
	return i, errShort
}

func member(data []byte, i int) (Member, int, error) {
	key, start, err := readKey(data, i)
	if err != nil {
		return Member{}, i, err
	}
	next, err := skipValue(data, start)
	if err != nil {
		return Member{}, i, err
	}
	return Member{Key: string(key), KeyStart: i, Value: Value{Raw: data[start:next], Start: start}}, next, nil
}

// readKey reads a key and returns the start of its value. The key may be part of data.
func readKey(data []byte, i int) (key []byte, value int, err error) {
	if data[i] != '"' {
		return nil, i, fmt.Errorf("invalid character %q at offset %d: want a key", data[i], i)
	}
	end, err := skipString(data, i)
	if err != nil {
		return nil, i, err
	}
	if key = data[i+1 : end-1]; !isPlain(key) {
		text, err := Unquote(data[i:end])
		if err != nil {
			return nil, i, err
		}
		key = []byte(text)
	}
	colon := skipSpace(data, end)
	if colon >= len(data) || data[colon] != ':' {
		return nil, i, fmt.Errorf("no ':' after key %q at offset %d", key, i)
	}
	return key, skipSpace(data, colon+1), nil
}

// Unquote decodes a JSON string as written, quotes included.
func Unquote(raw []byte) (string, error) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return "", fmt.Errorf("%s is not a string", raw)
	}
	if isPlain(raw[1 : len(raw)-1]) {
		return string(raw[1 : len(raw)-1]), nil
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err
}

// isPlain reports whether the text between quotes stands for itself.
func isPlain(text []byte) bool {
	for _, c := range text {
		if c == '\\' || c < 0x20 || c >= 0x80 || c == '"' {
			return false
		}
	}
	return true
}

// skipValue returns the end of the value that starts at i.
func skipValue(data []byte, i int) (int, error) {
	if i >= len(data) {
		return i, errShort
	}
	switch data[i] {
	case '"':
		return skipString(data, i)
	case '{', '[':
		return skipNested(data, i)
	}
	start := i
	for i < len(data) && !isEnd(data[i]) {
		i++
	}
	if i == start {
		return i, fmt.Errorf("invalid character %q at offset %d: want a value", data[i], i)
	}
	return i, nil
}

func skipNested(data []byte, i int) (int, error) {
	for depth := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1, nil
			}
		case '"':
			end, err := skipString(data, i)
			if err != nil {
				return i, err
			}
			i = end - 1
		}
	}
	return i, errShort
}

func skipString(data []byte, i int) (int, error) {
	for i++; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1, nil
		}
	}
	return len(data), errShort
}

func skipSpace(data []byte, i int) int {
	for i < len(data) && isSpace(data[i]) {
		i++
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isEnd(c byte) bool { return c == ',' || c == ']' || c == '}' || c == ':' || isSpace(c) }
