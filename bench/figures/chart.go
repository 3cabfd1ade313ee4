package figures

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// Bar is one bar of a chart.
type Bar struct {
	Series string // selects the color, see Chart.Series
	Value  float64
}

// Chart has groups of horizontal bars with a common scale.
type Chart struct {
	Title  string
	Unit   string
	Series []string // series beyond the number of colors share the last one
	Groups []Group
}

// Group is a label and its bars.
type Group struct {
	Label string
	Bars  []Bar
}

// colours returns the series' colors for a light page and for a dark one.
func colours() (light, dark []string) {
	return []string{"#b45309", "#64748b", "#0f766e", "#1d4ed8", "#7c3aed", "#be185d", "#15803d"},
		[]string{"#fbbf24", "#94a3b8", "#2dd4bf", "#60a5fa", "#c4b5fd", "#f472b6", "#4ade80"}
}

const ( // pixels
	chartWidth = 860
	labelWidth = 300
	barHeight  = 14
	barGap     = 3
	groupGap   = 14
	topSpace   = 64
	valueSpace = 70
)

// SVG draws the chart so that it is readable on a light and on a dark page.
func (c Chart) SVG() string {
	var body strings.Builder
	y := topSpace
	scale := float64(chartWidth-labelWidth-valueSpace) / c.longest()
	for _, g := range c.Groups {
		fmt.Fprintf(&body, `<text class="t" x="%d" y="%d" text-anchor="end">%s</text>`+"\n", labelWidth-8, y+barHeight-2, html.EscapeString(g.Label))
		for _, b := range g.Bars {
			width := max(1, scale*b.Value)
			fmt.Fprintf(&body, `<rect class="s%d" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`+"\n", c.series(b.Series), labelWidth, y, width, barHeight)
			fmt.Fprintf(&body, `<text class="v" x="%.1f" y="%d">%s</text>`+"\n", labelWidth+width+5, y+barHeight-3, ms(b.Value))
			y += barHeight + barGap
		}
		y += groupGap
	}
	return c.head(y) + body.String() + "</svg>\n"
}

// longest returns the largest value, or 1 without values.
func (c Chart) longest() float64 {
	most := 0.0
	for _, g := range c.Groups {
		for _, b := range g.Bars {
			most = max(most, b.Value)
		}
	}
	if most == 0 {
		return 1
	}
	return most
}

func (c Chart) series(name string) int {
	light, _ := colours()
	return min(max(0, slices.Index(c.Series, name)), len(light)-1)
}

func (c Chart) head(height int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`+"\n",
		chartWidth, height, chartWidth, height, html.EscapeString(c.Title))
	light, dark := colours()
	b.WriteString("<style>\ntext { font: 12px system-ui, sans-serif }\n.h { font-weight: 600; font-size: 14px }\n")
	b.WriteString(style(light, "#1f2937"))
	b.WriteString("@media (prefers-color-scheme: dark) {\n" + style(dark, "#e5e7eb") + "}\n</style>\n")
	fmt.Fprintf(&b, `<text class="h" x="8" y="20">%s</text>`+"\n", html.EscapeString(c.Title+", "+c.Unit))
	x := 8
	for _, s := range c.Series {
		fmt.Fprintf(&b, `<rect class="s%d" x="%d" y="34" width="12" height="12" rx="2"/><text class="t" x="%d" y="44">%s</text>`+"\n", c.series(s), x, x+17, html.EscapeString(s))
		x += 32 + 7*len(s)
	}
	return b.String()
}

// style returns the CSS rules for the colors of series and text.
func style(fills []string, text string) (css string) {
	for i, f := range fills {
		css += fmt.Sprintf(".s%d { fill: %s }\n", i, f)
	}
	return css + ".h, .t, .v { fill: " + text + " }\n"
}
