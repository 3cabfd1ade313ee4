package clustermap

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// Dimensions in pixels, and limits.
const (
	nodeWidth   = 250
	rowHeight   = 18
	headHeight  = 50
	margin      = 40
	shownRows   = 12 // maximum number of containers shown per node
	shownPairs  = 30 // maximum number of states of pairs in the legend
	linesUpTo   = 16 // maximum number of nodes with lines; more lines would hide the nodes
	legendWidth = 270
	seenX       = 80 // minimum visible length of a line between two nodes
	seenY       = 40
)

// colors returns the colors of networks, in order, and of backends. They are readable on white and distinguishable for
// colour-blind readers.
func colors() []string {
	return []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#6a3d9a", "#8c564b"}
}

func lineColor(t Tunnel) (color, dash string) {
	color = map[string]string{"host-gw": "#7f7f7f", "vxlan": "#0072b2", "wireguard": "#009e73", "ipip": "#e69f00", "bgp": "#cc79a7"}[t.By]
	if color == "" {
		return "#c00000", "2,4"
	}
	if t.State == Away {
		return color, "6,4"
	}
	return color, ""
}

type canvas struct{ strings.Builder }

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

func (c *canvas) text(x, y float64, size int, color, weight, s string) {
	c.add(`<text x="%.0f" y="%.0f" font-size="%d" fill="%s" font-weight="%s">%s</text>`, x, y, size, color, weight, escape(s))
}

// escape returns text for XML. Other programs choose names of containers in the store, and XML has no control
// characters.
func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder returns no error
	return b.String()
}

// SVG draws the map.
func (m *Map) SVG(w io.Writer) error {
	at, width, height := m.places()
	height = max(height, 2*margin+52+20*float64(len(m.Networks)+min(len(m.Pairs), shownPairs+1))) // of the legend
	c := &canvas{}
	c.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" font-family="sans-serif">`, width, height, width, height)
	c.add(`<rect width="100%%" height="100%%" fill="#ffffff"/>`)
	if len(m.Nodes) <= linesUpTo {
		for _, t := range m.Tunnels {
			c.tunnel(t, at)
		}
	}
	color := map[string]string{}
	for i, n := range m.Networks {
		color[n.Name] = colors()[i%len(colors())]
	}
	for _, n := range m.Nodes {
		c.node(n, at[n.Name], color)
	}
	m.legend(c, width-legendWidth, color)
	c.add(`</svg>`)
	_, err := io.WriteString(w, c.String())
	return err
}

type box struct{ x, y, w, h float64 }

func (b box) center() (x, y float64) { return b.x + b.w/2, b.y + b.h/2 }

func heightOf(n Node) float64 {
	return headHeight + rowHeight*float64(min(len(n.Containers), shownRows+1)) + 12
}

// places arranges the nodes on an ellipse if lines are drawn, or else in a grid.
func (m *Map) places() (at map[string]box, width, height float64) {
	at = map[string]box{}
	tallest := float64(headHeight)
	for _, n := range m.Nodes {
		tallest = max(tallest, heightOf(n))
	}
	count := len(m.Nodes)
	if count > 2 && count <= linesUpTo {
		rx := max(nodeWidth, float64(count)*nodeWidth/math.Pi/1.4)
		ry := max(tallest, float64(count)*tallest/math.Pi/1.6)
		at = m.circle(rx, ry, tallest)
		for !apart(at) {
			rx, ry = rx*1.1, ry*1.1
			at = m.circle(rx, ry, tallest)
		}
		return at, 2*rx + nodeWidth + 2*margin + legendWidth, 2*ry + tallest + 2*margin
	}
	columns := max(1, int(math.Ceil(math.Sqrt(float64(count)))))
	for i, n := range m.Nodes {
		at[n.Name] = box{margin + float64(i%columns)*(nodeWidth+2*margin), margin + float64(i/columns)*(tallest+margin), nodeWidth, heightOf(n)}
	}
	rows := max(1, (count+columns-1)/columns)
	return at, float64(columns)*(nodeWidth+2*margin) + margin + legendWidth, float64(rows)*(tallest+margin) + margin + 200
}

// circle arranges the nodes on an ellipse.
func (m *Map) circle(rx, ry, tallest float64) map[string]box {
	at := map[string]box{}
	for i, n := range m.Nodes {
		a := 2*math.Pi*float64(i)/float64(len(m.Nodes)) - math.Pi/2
		h := heightOf(n)
		at[n.Name] = box{margin + rx + rx*math.Cos(a), margin + ry + ry*math.Sin(a) + (tallest-h)/2, nodeWidth, h}
	}
	return at
}

// apart reports whether the lines between neighbouring nodes, and their labels, are visible.
func apart(at map[string]box) bool {
	for a, p := range at {
		for b, q := range at {
			if a != b && math.Abs(p.x-q.x) < nodeWidth+seenX && p.y < q.y+q.h+seenY && q.y < p.y+p.h+seenY {
				return false
			}
		}
	}
	return true
}

func (c *canvas) tunnel(t Tunnel, at map[string]box) {
	x1, y1 := at[t.A].center()
	x2, y2 := at[t.B].center()
	color, dash := lineColor(t)
	c.add(`<line x1="%.0f" y1="%.0f" x2="%.0f" y2="%.0f" stroke="%s" stroke-width="2.5" stroke-dasharray="%s"><title>%s - %s: %s %s</title></line>`,
		x1, y1, x2, y2, color, dash, escape(t.A), escape(t.B), t.By, escape(t.State))
	word := t.By
	if word == "" {
		word = "not connected"
	}
	c.text((x1+x2)/2+6, (y1+y2)/2-4, 11, color, "normal", word)
}

func (c *canvas) node(n Node, b box, color map[string]string) {
	border, back := "#333333", "#f7f9fb"
	if n.State == Away {
		border, back = "#999999", "#eeeeee"
	}
	c.add(`<rect x="%.0f" y="%.0f" width="%.0f" height="%.0f" rx="6" fill="%s" stroke="%s" stroke-width="1.5"/>`, b.x, b.y, b.w, b.h, back, border)
	title := n.Name
	if n.State == Away {
		title += " (away)"
	}
	c.text(b.x+10, b.y+20, 15, border, "bold", title)
	c.text(b.x+10, b.y+38, 11, "#555555", "normal", strings.Join(n.Addresses, ", "))
	y := b.y + headHeight + 10
	for i, x := range n.Containers {
		if i == shownRows && len(n.Containers) > shownRows+1 {
			c.text(b.x+10, y, 11, "#555555", "normal", fmt.Sprintf("and %d more", len(n.Containers)-shownRows))
			break
		}
		c.add(`<circle cx="%.0f" cy="%.0f" r="5" fill="%s"/>`, b.x+15, y-4, color[x.Network])
		c.text(b.x+26, y, 11, "#222222", "normal", short(x.Name, 16)+"  "+short(strings.Join(x.IPs, " "), 22))
		y += rowHeight
	}
}

func short(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

func (m *Map) legend(c *canvas, x float64, color map[string]string) {
	y := float64(margin)
	c.text(x, y, 13, "#222222", "bold", "Networks")
	for _, n := range m.Networks {
		y += 20
		c.add(`<circle cx="%.0f" cy="%.0f" r="6" fill="%s"/>`, x+8, y-4, color[n.Name])
		word := n.Name + "  " + short(strings.Join(n.Subnets, " "), 24)
		if n.Isolated {
			word += fmt.Sprintf("  VNI %d", n.VNI)
		}
		c.text(x+22, y, 11, "#222222", "normal", word)
	}
	y += 32
	c.text(x, y, 13, "#222222", "bold", "Pairs of hosts")
	for i, word := range sorted(m.Pairs) {
		y += 20
		if i == shownPairs {
			c.text(x+8, y, 11, "#222222", "normal", fmt.Sprintf("and %d more states", len(m.Pairs)-shownPairs))
			break
		}
		c.text(x+8, y, 11, "#222222", "normal", fmt.Sprintf("%d  %s", m.Pairs[word], short(word, 40)))
	}
}
