package main

import (
	"fmt"
	"html"
	"strings"
)

// diagram is a drawing of boxes in a grid, and arrows between them.
type diagram struct {
	title  string // for people who cannot see the drawing
	boxes  []box
	arrows []arrow
}

// box covers columns and rows of the grid. The first line of its text is bold.
type box struct {
	id            string
	col, row      int
	width, height int // in columns and rows
	fill          string
	text          []string
}

// arrow leads from one box to another, with a label next to it.
type arrow struct {
	from, to string
	label    string
	dashed   bool
}

// The grid, in pixels.
const (
	columnWidth = 150
	rowHeight   = 50
	gap         = 14
	border      = 16
)

// Fill colours: what the user runs, what Fairlead does, and what the kernel has.
const (
	userColor   = "#fff4d6"
	codeColor   = "#dcebfa"
	kernelColor = "#e4f3e4"
	wireColor   = "#f3e4ec"
)

func (b box) rect() (x, y, w, h int) {
	return border + b.col*columnWidth, border + b.row*rowHeight, b.width*columnWidth - gap, b.height*rowHeight - gap
}

func (d diagram) svg() []byte {
	width, height := 0, 0
	at := map[string]box{}
	for _, b := range d.boxes {
		x, y, w, h := b.rect()
		width, height = max(width, x+w+border), max(height, y+h+border)
		at[b.id] = b
	}
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s" font-family="sans-serif">`+"\n",
		width, height, width, height, html.EscapeString(d.title))
	out.WriteString(`<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L10 5L0 10z" fill="#444"/></marker></defs>` + "\n")
	fmt.Fprintf(&out, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	for _, b := range d.boxes {
		b.draw(&out)
	}
	for _, a := range d.arrows {
		a.draw(&out, at[a.from], at[a.to])
	}
	out.WriteString("</svg>\n")
	return []byte(out.String())
}

func (b box) draw(out *strings.Builder) {
	x, y, w, h := b.rect()
	fmt.Fprintf(out, `<rect x="%d" y="%d" width="%d" height="%d" rx="6" fill="%s" stroke="#8a8a8a"/>`+"\n", x, y, w, h, b.fill)
	const lineHeight = 16
	top := y + h/2 - (len(b.text)-1)*lineHeight/2 + 4
	for i, line := range b.text {
		weight := "normal"
		if i == 0 {
			weight = "bold"
		}
		fmt.Fprintf(out, `<text x="%d" y="%d" font-size="12" font-weight="%s" text-anchor="middle" fill="#222">%s</text>`+"\n",
			x+w/2, top+i*lineHeight, weight, html.EscapeString(line))
	}
}

// draw connects the two boxes between the sides that face each other.
func (a arrow) draw(out *strings.Builder, from, to box) {
	fx, fy, fw, fh := from.rect()
	tx, ty, tw, th := to.rect()
	var x1, y1, x2, y2 int
	switch {
	case ty >= fy+fh: // below
		x := middle(fx, fx+fw, tx, tx+tw)
		x1, y1, x2, y2 = x, fy+fh, x, ty
	case ty+th <= fy: // above
		x := middle(fx, fx+fw, tx, tx+tw)
		x1, y1, x2, y2 = x, fy, x, ty+th
	case tx >= fx+fw: // to the right
		y := middle(fy, fy+fh, ty, ty+th)
		x1, y1, x2, y2 = fx+fw, y, tx, y
	default: // to the left
		y := middle(fy, fy+fh, ty, ty+th)
		x1, y1, x2, y2 = fx, y, tx+tw, y
	}
	dash := ""
	if a.dashed {
		dash = ` stroke-dasharray="5,4"`
	}
	fmt.Fprintf(out, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#444" stroke-width="1.5"%s marker-end="url(#tip)"/>`+"\n", x1, y1, x2, y2, dash)
	if a.label != "" {
		fmt.Fprintf(out, `<text x="%d" y="%d" font-size="11" fill="#444">%s</text>`+"\n", (x1+x2)/2+6, (y1+y2)/2+4, html.EscapeString(a.label))
	}
}

// middle returns the middle of the part that two ranges share.
func middle(a1, a2, b1, b2 int) int { return (max(a1, b1) + min(a2, b2)) / 2 }
