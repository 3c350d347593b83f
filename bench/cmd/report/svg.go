package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
)

// The colours of the plots, which are seen on white and on black.
var colours = []string{"#4c78a8", "#f58518", "#54a24b", "#b279a2"}

const textColour = "#6e7781"

// drawing is an SVG in the making.
type drawing struct{ bytes.Buffer }

func newDrawing(width, height int, title string) *drawing {
	d := &drawing{}
	fmt.Fprintf(d, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="sans-serif" font-size="12" fill="%s">`+"\n",
		width, height, textColour)
	fmt.Fprintf(d, "<title>%s</title>\n", html.EscapeString(title))
	d.text(10, 20, "start", title)
	return d
}

func (d *drawing) text(x, y float64, anchor, text string) {
	fmt.Fprintf(d, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(text))
}

func (d *drawing) bar(x, y, width, height float64, colour string) {
	fmt.Fprintf(d, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, y, width, height, colour)
}

func (d *drawing) rule(x1, y1, x2, y2 float64) {
	fmt.Fprintf(d, `<path d="M%.1f %.1fL%.1f %.1f" stroke="%s" stroke-opacity="0.4"/>`+"\n", x1, y1, x2, y2, textColour)
}

// path draws a line through the points, and a dot at each.
func (d *drawing) path(points [][2]float64, colour string) {
	command := "M"
	fmt.Fprint(d, `<path fill="none" stroke-width="2" stroke="`, colour, `" d="`)
	for _, p := range points {
		fmt.Fprintf(d, "%s%.1f %.1f", command, p[0], p[1])
		command = "L"
	}
	fmt.Fprintln(d, `"/>`)
	for _, p := range points {
		fmt.Fprintf(d, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", p[0], p[1], colour)
	}
}

// legend says what the colours are.
func (d *drawing) legend(x, y float64, names []string) {
	for i, name := range names {
		d.bar(x, y-9, 10, 10, colours[i])
		d.text(x+15, y, "start", name)
		x += 35 + 6.5*float64(len(name))
	}
}

func (d *drawing) end() []byte {
	fmt.Fprintln(d, "</svg>")
	return d.Bytes()
}

// ceiling is a round number that is not below v: 1, 2 or 5 of some power of ten.
func ceiling(v float64) float64 {
	if v <= 0 {
		return 1 // noise alone: there is nothing to see
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if v <= f*power {
			return f * power
		}
	}
	return 10 * power
}
