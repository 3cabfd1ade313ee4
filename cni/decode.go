package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cni/rawjson"
)

// Decode reads a configuration into v, a pointer to a typed one, as
// json.Unmarshal does. What cannot be read is a *ConfigError that names line,
// column, key and value, and says what is allowed there.
func Decode(data []byte, v any) error {
	if json.Valid(data) && rawjson.Decode(data, v) == nil {
		return nil
	}
	err := json.Unmarshal(data, v)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return syntaxError(data, e)
	}
	path, culprit, problem := narrow(data, v, err)
	e := Invalid(data, path, problem)
	e.cause = culprit
	return e
}

// Invalid says that the value at key, a path like "ipam.ranges[0][0].subnet",
// is refused. Line, column and value are those it has in data, the raw
// configuration, which may be nil; for an absent key they are those of the
// object that lacks it.
func Invalid(data []byte, key, problem string) *ConfigError {
	e := &ConfigError{Key: key, Problem: problem}
	if len(bytes.TrimSpace(data)) == 0 {
		return e
	}
	v, found := rawjson.Find(data, key)
	e.Line, e.Column = rawjson.Position(data, v.Start)
	if found {
		e.Value = shorten(v.Raw)
	}
	return e
}

// Check returns a *ConfigError if data is not JSON. It costs less than Decode.
func Check(data []byte) error {
	if json.Valid(data) {
		return nil
	}
	return Decode(data, new(any))
}

func syntaxError(data []byte, err *json.SyntaxError) *ConfigError {
	e := &ConfigError{Problem: err.Error(), cause: err}
	// Offset counts the bytes read, the offending one included.
	offset := int(err.Offset) - 1
	if len(bytes.TrimSpace(data)) == 0 {
		e.Problem, offset = "empty: want a JSON object", 0
	}
	e.Line, e.Column = rawjson.Position(data, offset)
	return e
}

// shownValue is how many bytes of a value an error shows.
const shownValue = 60

func shorten(raw []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		b.Reset()
		b.Write(raw)
	}
	if b.Len() <= shownValue {
		return b.String()
	}
	cut := shownValue
	for !utf8.RuneStart(b.Bytes()[cut]) {
		cut--
	}
	return string(b.Bytes()[:cut]) + "..."
}
