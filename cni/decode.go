package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cni/rawjson"
)

// Decode decodes a configuration into v, as json.Unmarshal does. An error is a *ConfigError with line, column, key,
// value, and what is allowed there.
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
	path, problem, culprit := narrow(data, v, err)
	e := Invalid(data, path, problem)
	e.cause = culprit
	return e
}

// Invalid returns an error about the value at key, a path like "ipam.ranges[0][0].subnet". Line, column and value are
// from data, the raw configuration, which may be nil. For an absent key they are those of the object that should
// contain it.
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

// Check returns a *ConfigError if data is not JSON. It is cheaper than Decode.
func Check(data []byte) error {
	if json.Valid(data) {
		return nil
	}
	return Decode(data, new(any))
}

func syntaxError(data []byte, err *json.SyntaxError) *ConfigError {
	e := &ConfigError{Problem: explainSyntax(err.Error()), cause: err}
	// Offset counts the bytes read, including the invalid one.
	offset := int(err.Offset) - 1
	if len(bytes.TrimSpace(data)) == 0 {
		e.Problem, offset = "empty: want a JSON object", 0
	}
	if bytes.HasPrefix(data, []byte("\ufeff")) { // editors do not show it
		e.Problem = "the text begins with a byte order mark: save it as UTF-8 without one"
	}
	e.Line, e.Column = rawjson.Position(data, offset)
	return e
}

// explainSyntax translates a syntax error of encoding/json into what is allowed at that position.
func explainSyntax(text string) string {
	found, where, ok := strings.Cut(strings.TrimPrefix(text, "invalid character "), "' ")
	found += "'"
	switch {
	case text == "unexpected end of JSON input":
		return `the text ends too early: a closing }, ] or " is missing`
	case !ok:
		return text
	case where == "looking for beginning of object key string" && found == "'}'":
		return "want a key in double quotes, found '}': remove the comma before it"
	case where == "looking for beginning of object key string":
		return "want a key in double quotes, found " + found
	case where == "looking for beginning of value" && (found == "']'" || found == "'}'"):
		return "want a value, found " + found + ": remove the comma before it, or add the value"
	case where == "looking for beginning of value":
		return "want a value, found " + found + ": text must be in double quotes"
	case where == "exceeded max depth":
		return "the text is nested too deeply: at most 10000 levels are allowed"
	case where == "after object key":
		return "want a colon after the key, found " + found
	case where == "after object key:value pair":
		return "want a comma or } after the value, found " + found
	case where == "after array element":
		return "want a comma or ] after the value, found " + found
	case where == "after top-level value":
		return "want nothing after the closing }, found " + found
	case where == "in string literal":
		return "the text in quotes has the control character " + found + `: write it as an escape sequence, like \n`
	case strings.HasPrefix(where, "in string escape code"), strings.HasPrefix(where, `in \u`):
		return "the text in quotes has an invalid escape sequence: want \\\\ for a backslash"
	case strings.HasPrefix(where, "in literal"):
		return "want true, false, null, a number, or text in double quotes"
	}
	return "the number is not valid: found " + found + " in it"
}

// shownValue is the number of bytes of a value that an error shows.
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
