package figures

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Report is the result of a run of the benchmark.
type Report struct {
	Machine string `json:"machine"` // description of the machine
	Rounds  int    `json:"rounds"`
	Rows    []Row  `json:"rows"`
}

// Moment returns the date and the commit of a measurement.
func Moment() string {
	today := time.Now().Format(time.DateOnly)
	commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil { // the virtual machine has no git
		return today
	}
	return today + ", commit " + strings.TrimSpace(string(commit))
}

// Write writes a report as JSON.
func (r Report) Write(file string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(raw, '\n'), 0o644)
}

// Read reads a report that Write wrote.
func Read(file string) (r Report, err error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("%s is not a report of this benchmark: %w", file, err)
	}
	return r, nil
}

// Groups returns the names of the rows' groups, in order.
func (r Report) Groups() (names []string) {
	seen := map[string]bool{}
	for _, row := range r.Rows {
		if !seen[row.Group] {
			seen[row.Group] = true
			names = append(names, row.Group)
		}
	}
	return names
}

// Of returns the rows of a group.
func (r Report) Of(group string) (rows []Row) {
	for _, row := range r.Rows {
		if row.Group == group {
			rows = append(rows, row)
		}
	}
	return rows
}

// find returns the row of an operation, or nil if it was not measured.
func (r Report) find(name, verb, by string) *Row {
	for i := range r.Rows {
		if row := &r.Rows[i]; row.Case == name && row.Verb == verb && row.By == by {
			return row
		}
	}
	return nil
}

// With returns a report in which a later run's cases replace the earlier ones.
func (r Report) With(later Report) Report {
	name := func(row Row) string { return row.Group + ": " + row.Case }
	again := map[string][]Row{}
	for _, row := range later.Rows {
		again[name(row)] = append(again[name(row)], row)
	}
	var rows []Row
	for _, row := range append(slices.Clone(r.Rows), later.Rows...) {
		of, measured := again[name(row)]
		if !measured {
			rows = append(rows, row)
			continue
		}
		rows = append(rows, of...) // at the case's first row
		again[name(row)] = nil
	}
	r.Rows, r.Machine = rows, later.Machine
	return r
}
