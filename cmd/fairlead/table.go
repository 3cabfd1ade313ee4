package main

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// table is rows of cells that are printed in aligned columns; an empty cell
// is a dash.
type table [][]string

func (t table) print(w io.Writer) error {
	var widths []int
	for _, row := range t {
		for i, cell := range row {
			cell = harmless(cell)
			if i == len(widths) {
				widths = append(widths, 1)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range t {
		line := ""
		for i, cell := range row {
			if cell = harmless(cell); cell == "" {
				cell = "-"
			}
			line += cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// harmless has a mark in place of what moves a terminal's cursor: names in the cluster's
// store are of other hosts and of pods.
func harmless(cell string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, cell)
}
