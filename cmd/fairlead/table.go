package main

import (
	"io"
	"strings"
	"unicode/utf8"
)

// table is rows of cells that are printed in aligned columns; an empty cell
// is a dash.
type table [][]string

func (t table) print(w io.Writer) error {
	var widths []int
	for _, row := range t {
		for i, cell := range row {
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
			if cell == "" {
				cell = "-"
			}
			line += cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
