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
	if n, err := fmt.Sscanf(details, positionFormat, &line, &column); err != nil || n != 2 {
		return 0, 0, false
	}
	offset := rawjson.Offset(request, line, column)
	if offset < 0 || offset >= len(request) {
		return 0, 0, false
	}
	path := rawjson.PathAt(request, offset)
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
