package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// printer writes the demo for a person: aligned columns, and colours on a
// terminal.
type printer struct {
	out   io.Writer
	color bool
	pause time.Duration // between lines, for the reader
	began time.Time     // of the step
	step  int
}

const (
	demoWidth = 80 // columns
	leftWidth = 38
	demoPause = 60 * time.Millisecond
)

func (a *app) newPrinter(o demoOptions) *printer {
	p := &printer{out: a.stdout}
	if terminal(a.stdout) {
		p.color = !o.noColor && a.getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		if !o.fast {
			p.pause = demoPause
		}
	}
	return p
}

// The colours, ECMA-48.
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

func (p *printer) line(s string) {
	fmt.Fprintln(p.out, strings.TrimRight(s, " "))
	time.Sleep(p.pause)
}

func (p *printer) note(format string, args ...any) {
	for _, l := range strings.Split(fmt.Sprintf(format, args...), "\n") {
		p.line("   " + p.paint(dim, l))
	}
}

// title begins a step.
func (p *printer) title(s string) {
	p.step++
	p.began = time.Now()
	p.line("")
	p.line(p.paint(bold, fmt.Sprintf("%d  %s", p.step, s)))
}

// end closes a step with the time it took, the reader's not counted.
func (p *printer) end(took time.Duration) {
	t := milliseconds(took)
	p.line("   " + p.paint(dim, strings.Repeat("─", demoWidth-4-len(t))+" "+t))
}

// row is what was done, what came of it, and how long it took (0: not said).
func (p *printer) row(left, right string, took time.Duration) {
	t := ""
	if took > 0 {
		t = milliseconds(took)
	}
	gap := demoWidth - 3 - width(left, leftWidth) - utf8.RuneCountInString(right) - len(t)
	p.line("   " + pad(left, leftWidth) + p.paint(green, right) + strings.Repeat(" ", max(1, gap)) + p.paint(dim, t))
}

// command is a row whose left is what a person would type.
func (p *printer) command(cmd, right string, took time.Duration) { p.row("$ "+cmd, right, took) }

func pad(s string, w int) string {
	return s + strings.Repeat(" ", max(2, w-utf8.RuneCountInString(s)))
}

// width is how wide pad makes s.
func width(s string, w int) int { return utf8.RuneCountInString(pad(s, w)) }

func (p *printer) success(format string, args ...any) {
	p.line("")
	p.line(p.paint(green, "✓ ") + p.paint(bold, fmt.Sprintf(format, args...)))
}

func (p *printer) failure(err error) {
	p.line("")
	p.line(p.paint(red, "✗ ") + err.Error())
}
