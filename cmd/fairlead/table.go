package main

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// table is rows of cells that are printed in aligned columns. An empty cell is printed as a dash. The last cell of a row
// may have several lines.
type table [][]string

// printTable prints a table. Columns from the given number on are printed with --output wide only; 0 prints all.
func (a *app) printTable(t table, columns int) error {
	if columns > 0 && a.format != formatWide {
		for i := range t {
			t[i] = t[i][:min(columns, len(t[i]))]
		}
	}
	return t.print(a.stdout)
}

func (t table) print(w io.Writer) error {
	var widths []int
	for _, row := range t {
		for i, cell := range row {
			cell = printable(cell)
			if i == len(widths) {
				widths = append(widths, 1)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range t {
		line, column := "", 0
		for i, cell := range row {
			if cell = printable(cell); cell == "" {
				cell = "-"
			}
			padding := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
			line += strings.ReplaceAll(cell, "\n", "\n"+strings.Repeat(" ", column)) + padding
			column += widths[i] + 2
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printable replaces terminal control characters. Other hosts and pods choose the names in the cluster's store, so a name
// may contain escape sequences.
func printable(cell string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, cell)
}
