// Package yamlerr explains errors in YAML.
package yamlerr

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Explain returns an error of the YAML parser in words for users, as FILE:LINE:COLUMN: MESSAGE. The column is that of the
// line's first character: the parser does not report a column. File may be "".
func Explain(file string, raw []byte, err error) error {
	text, more, _ := strings.Cut(strings.TrimPrefix(err.Error(), "yaml: "), "\n")
	if text == "unmarshal errors:" { // each has a line of its own: the first one counts
		text, _, _ = strings.Cut(strings.TrimSpace(more), "\n")
	}
	line := 1
	if m := regexp.MustCompile(`^line (\d+): (.*)`).FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = m[2]
	}
	column := 1
	if lines := strings.Split(string(raw), "\n"); line <= len(lines) {
		column += len(lines[line-1]) - len(strings.TrimLeft(lines[line-1], " \t"))
	}
	return fmt.Errorf("%s%d:%d: %s", strings.TrimPrefix(file+":", ":"), line, column, explain(text))
}

var (
	twice     = regexp.MustCompile(`^(?:mapping )?key (".*") already (?:defined at line|set in map)`)
	wrongType = regexp.MustCompile("^cannot unmarshal !!\\w+ (`.*` )?into (.*)")
)

// Wanted describes a type of Go to which a value was not assigned.
func Wanted(goType string) string {
	switch {
	case strings.HasPrefix(goType, "int"), strings.HasPrefix(goType, "uint"):
		return "a whole number"
	case goType == "bool":
		return "true or false"
	case goType == "string":
		return "text"
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	}
	return "keys with values"
}

// explain translates a message of the YAML parser.
func explain(text string) string {
	if m := twice.FindStringSubmatch(text); m != nil {
		return "the key " + m[1] + " occurs twice"
	}
	if m := wrongType.FindStringSubmatch(text); m != nil {
		return strings.TrimPrefix(strings.ReplaceAll(strings.TrimSpace(m[1]), "`", `"`)+": ", ": ") + "want " + Wanted(m[2])
	}
	for part, explained := range map[string]string{
		"mapping values are not allowed":                  "there is a second \":\" on one line, or the line is indented too far: put a value that contains \":\" in quotes",
		"did not find expected key":                       "this line is indented differently from the keys around it, or a quote or bracket before it is not closed",
		"did not find expected '-' indicator":             "this line is indented like a list entry but does not begin with \"-\"",
		"could not find expected ':'":                     "want KEY: VALUE, with a space after the colon",
		"found character that cannot start any token":     "a value cannot begin with this character: use spaces instead of a tab, or put the value in quotes",
		"found a tab character":                           "want spaces instead of a tab",
		"did not find expected ',' or ']'":                "a list that begins with [ is not closed: want , or ]",
		"did not find expected ',' or '}'":                "a mapping that begins with { is not closed: want , or }",
		"did not find expected node content":              "a value is missing, or a list or mapping that begins with [ or { is not closed",
		"found unexpected end of stream":                  "the file ends inside a quoted text",
		"found unknown escape character":                  "a text in double quotes has a backslash that begins no escape sequence: use single quotes",
		"unknown anchor":                                  "an alias (*NAME) refers to an anchor (&NAME) that does not exist",
		"did not find expected <document start>":          "want one document: the file goes on after its end",
		"block sequence entries are not allowed":          "a list entry cannot begin here: put \"-\" on a line of its own",
		"block mapping entries are not allowed":           "a key cannot begin here: put it on a line of its own",
		"control characters are not allowed":              "the file has a control character: want text in UTF-8",
		"invalid leading UTF-8 octet":                     "the file is not text in UTF-8",
		"invalid trailing UTF-8 octet":                    "the file is not text in UTF-8",
		"while parsing a block mapping":                   "a key is indented differently from the keys around it",
		"found undefined tag handle":                      "a value begins with \"!\": put it in quotes",
		"did not find expected alphabetic or numeric":     "a value begins with \"&\" or \"*\": put it in quotes",
		"found invalid Unicode character escape code":     "a text in double quotes has an invalid \\u escape sequence",
		"did not find expected hexdecimal number":         "a text in double quotes has an incomplete escape sequence",
		"did not find expected comment or line break":     "want the text of a block (| or >) on the next line",
		"found unexpected document indicator":             "a quoted text is not closed before the next document",
		"found duplicate %YAML directive":                 "want one %YAML directive",
		"incomplete UTF-8 octet sequence":                 "the file is not text in UTF-8",
		"document contains excessive aliasing":            "the file repeats its anchors too often",
		"mapping key \"<<\" already defined":              "the key << occurs twice",
		"found a tab character that violates indentation": "want spaces instead of a tab",
	} {
		if strings.Contains(text, part) {
			return explained
		}
	}
	return "the YAML is not valid: " + text
}
