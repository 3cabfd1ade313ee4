package cni

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/cni/rawjson"
)

const positionFormat = "at line %d, column %d of the configuration that the plugin was given"

// PositionDetails returns the details of a plugin's error about a value in its configuration. The plugin does not know
// the file that a person wrote; see Relocate.
func PositionDetails(line, column int) string { return fmt.Sprintf(positionFormat, line, column) }

// Relocate finds the value that PositionDetails names in the document from which the plugin's configuration was derived.
// request is the plugin's standard input, and at is the path of the plugin's configuration in doc, "" for the whole. ok is
// false for other details, and if doc does not contain the value.
func Relocate(details string, request, doc []byte, at string) (line, column int, ok bool) {
	path, ok := PathOf(details, request)
	if !ok {
		return 0, 0, false
	}
	if at != "" && path != "" && path[0] != '[' {
		at += "."
	}
	v, found := rawjson.Find(doc, strings.TrimSuffix(at+path, "."))
	if !found {
		return 0, 0, false
	}
	line, column = rawjson.Position(doc, v.Start)
	return line, column, true
}

// PathOf returns the path of the value that PositionDetails names in a plugin's configuration, "" for the whole. ok is
// false for other details.
func PathOf(details string, conf []byte) (path string, ok bool) {
	var line, column int
	if n, err := fmt.Sscanf(details, positionFormat, &line, &column); err != nil || n != 2 {
		return "", false
	}
	offset := rawjson.Offset(conf, line, column)
	if offset < 0 || offset >= len(conf) {
		return "", false
	}
	return rawjson.PathAt(conf, offset), true
}
