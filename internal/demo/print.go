package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// printer prints the demo for a person, in aligned columns and colors. It keeps the steps as data.
type printer struct {
	out    io.Writer
	color  bool
	pause  time.Duration // between lines, for the reader
	began  time.Time     // start of the step
	rested time.Duration // pauses since began
	steps  []step
}

// step is a step of the demo as data.
type step struct {
	Title        string     `json:"title"`
	Rows         []tableRow `json:"rows"`
	Milliseconds float64    `json:"milliseconds"`
}

type tableRow struct {
	What         string  `json:"what"`
	Outcome      string  `json:"outcome,omitempty"`
	Milliseconds float64 `json:"milliseconds,omitempty"`
}

const (
	width     = 80 // columns
	leftWidth = 38
	linePause = 60 * time.Millisecond
)

func newPrinter(o Options) *printer {
	p := &printer{out: o.Stdout, color: o.Color}
	switch {
	case o.JSON:
		p.out = io.Discard
	case o.Terminal && !o.Fast:
		p.pause = linePause
	}
	return p
}

// The colors of ECMA-48.
const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
	cyan  = "36"
)

func (p *printer) paint(color, s string) string {
	if !p.color || s == "" {
		return s
	}
	return "\033[" + color + "m" + s + "\033[0m"
}

// heading prints a line at the left margin. text prints an indented line.
func (p *printer) heading(s string) {
	fmt.Fprintln(p.out, strings.TrimRight(s, " "))
	time.Sleep(p.pause)
	p.rested += p.pause
}

func (p *printer) text(s string) { p.heading("   " + s) }

func (p *printer) note(format string, args ...any) {
	for l := range strings.SplitSeq(fmt.Sprintf(format, args...), "\n") {
		p.text(p.paint(dim, l))
	}
}

// title begins a step.
func (p *printer) title(s string) {
	p.heading("")
	p.steps = append(p.steps, step{Title: s, Rows: []tableRow{}})
	p.began, p.rested = time.Now(), 0
	p.heading(p.paint(bold, fmt.Sprintf("%d  %s", len(p.steps), s)))
}

// last returns the current step.
func (p *printer) last() *step { return &p.steps[len(p.steps)-1] }

// end closes a step and prints its duration without pauses.
func (p *printer) end() {
	took := time.Since(p.began) - p.rested
	p.last().Milliseconds = inMilliseconds(took)
	t := milliseconds(took)
	p.text(p.paint(dim, strings.Repeat("─", width-4-len(t))+" "+t))
}

// row prints an action, its result, and its duration. It prints no duration of 0.
func (p *printer) row(left, right string, took time.Duration) {
	p.last().Rows = append(p.last().Rows, tableRow{left, right, inMilliseconds(took)})
	t := ""
	if took > 0 {
		t = milliseconds(took)
	}
	left = pad(left, leftWidth)
	gap := width - 3 - utf8.RuneCountInString(left+right) - len(t)
	p.text(left + p.paint(green, right) + strings.Repeat(" ", max(1, gap)) + p.paint(dim, t))
}

// command prints a row whose action is a command line.
func (p *printer) command(cmd, right string, took time.Duration) { p.row("$ "+cmd, right, took) }

func pad(s string, w int) string {
	return s + strings.Repeat(" ", max(2, w-utf8.RuneCountInString(s)))
}

func (p *printer) success(format string, args ...any) {
	p.heading("")
	p.heading(p.paint(green, "✓ ") + p.paint(bold, fmt.Sprintf(format, args...)))
}

func (p *printer) failure(err error) {
	p.heading("")
	p.heading(p.paint(red, "✗ ") + err.Error())
}

// milliseconds formats a duration in milliseconds.
func milliseconds(d time.Duration) string {
	ms := inMilliseconds(d)
	if ms < 1 {
		return fmt.Sprintf("%.2f ms", ms)
	}
	return fmt.Sprintf("%.1f ms", ms)
}

func inMilliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
