package main

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"strings"
)

// step is one command of the session and what it printed.
type step struct {
	command string
	output  []string
}

// parseSession reads what record.sh wrote: "$ COMMAND" begins a step, and its output follows.
func parseSession(r io.Reader) (steps []step, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			steps = append(steps, step{command: command})
		} else if len(steps) > 0 {
			last := &steps[len(steps)-1]
			last.output = append(last.output, line)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(steps) < 3 {
		return nil, fmt.Errorf("it has %d commands", len(steps))
	}
	return steps, nil
}

// The terminal, in pixels and seconds.
const (
	imageWidth   = 893 // terminalCols characters and a border
	lineHeight   = 17
	terminalRows = 26
	terminalCols = 118
	stepSeconds  = 4.0
)

// screens returns what the terminal shows after each step: its last rows.
func screens(steps []step) (out [][]string) {
	var all []string
	for _, s := range steps {
		all = append(all, "$ "+s.command)
		for _, line := range s.output {
			all = append(all, clip(line))
		}
		all = append(all, "")
		out = append(out, append([]string(nil), all[max(0, len(all)-terminalRows):]...))
	}
	return out
}

// clip shortens a line that is wider than the terminal.
func clip(line string) string {
	if r := []rune(line); len(r) > terminalCols {
		return string(r[:terminalCols-1]) + "…"
	}
	return line
}

// animation shows one screen after the other, for ever.
func animation(steps []step) []byte {
	all := screens(steps)
	total := stepSeconds * float64(len(all))
	var out strings.Builder
	openTerminal(&out)
	for i, screen := range all {
		from, to := float64(i)/float64(len(all)), float64(i+1)/float64(len(all))
		out.WriteString(`<g visibility="hidden">`)
		fmt.Fprintf(&out, `<animate attributeName="visibility" dur="%.0fs" repeatCount="indefinite" calcMode="discrete" `, total)
		if i == 0 {
			fmt.Fprintf(&out, `keyTimes="0;%.4f;1" values="visible;hidden;hidden"/>`, to)
		} else {
			fmt.Fprintf(&out, `keyTimes="0;%.4f;%.4f;1" values="hidden;visible;%s;%s"/>`, from, min(to, 0.9999), hiddenUnlessLast(i, len(all)), "hidden")
		}
		out.WriteString("\n")
		drawScreen(&out, screen)
		out.WriteString("</g>\n")
	}
	out.WriteString("</svg>\n")
	return []byte(out.String())
}

func hiddenUnlessLast(i, n int) string {
	if i == n-1 {
		return "visible"
	}
	return "hidden"
}

// still shows the screen after "fairlead repair" alone, for readers without animation.
func still(steps []step) []byte {
	all := screens(steps)
	var out strings.Builder
	openTerminal(&out)
	shown := len(all) - 1
	for i, s := range steps {
		if s.command == "fairlead repair" {
			shown = i
		}
	}
	drawScreen(&out, all[shown])
	out.WriteString("</svg>\n")
	return []byte(out.String())
}

func openTerminal(out *strings.Builder) {
	width, height := imageWidth, terminalRows*lineHeight+32
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="A terminal session with the fairlead command" font-family="monospace" font-size="12">`+"\n", width, height, width, height)
	fmt.Fprintf(out, `<rect width="%d" height="%d" rx="8" fill="#1e2430"/>`+"\n", width, height)
}

func drawScreen(out *strings.Builder, lines []string) {
	for i, line := range lines {
		color := "#d7dde8"
		if strings.HasPrefix(line, "$ ") {
			color = "#8fd0ff"
		}
		fmt.Fprintf(out, `<text x="16" y="%d" fill="%s" xml:space="preserve">%s</text>`+"\n", 28+i*lineHeight, color, html.EscapeString(line))
	}
}
