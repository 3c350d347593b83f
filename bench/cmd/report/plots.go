package main

import (
	"math"

	"github.com/fedhttp/fedhttp/bench"
)

// chainsPlot is what a call costs through each chain, as bars: one where it makes no
// spans.
func chainsPlot(r *results) []byte {
	const (
		left, top   = 300, 60.0
		width       = 400
		bar, apart  = 12, 10
		right, foot = 70, 10
	)
	chains := bench.Chains()[1:]
	cost := func(trace string, c bench.Chain) float64 {
		return r.beyond(stub(trace, "GET", c.Name), stub("none", "GET", "bare"), "sec/op")
	}
	tracings := func(c bench.Chain) []column {
		if c.Traced {
			return gated
		}
		return gated[:1]
	}
	highest, bars := 0.0, 0
	for _, c := range chains {
		for _, t := range tracings(c) {
			highest = max(highest, cost(t.name, c))
			bars++
		}
	}
	if highest <= 0 {
		highest = 1 // noise alone
	}
	d := newDrawing(left+width+right, int(top)+bars*bar+len(chains)*apart+foot, "What a call costs beyond the stub that it ends in (GET)")
	var names []string
	for _, t := range gated {
		names = append(names, t.title)
	}
	d.legend(10, 42, names)
	y := top
	for _, c := range chains {
		d.text(left-10, y+float64(len(tracings(c))*bar)/2+4, "end", c.Title)
		for j, t := range tracings(c) {
			of := cost(t.name, c)
			long := max(0, width*of/highest)
			d.bar(left, y, long, bar-1, colours[j])
			d.text(left+long+5, y+bar-2, "start", duration(of))
			y += bar
		}
		y += apart
	}
	return d.end()
}

// growthPlot is what a call costs as peers and keys become more, as lines.
func growthPlot(r *results) []byte {
	const (
		left, top     = 80, 65.0
		width, height = 600, 260.0
		decades       = 6
	)
	highest := 0.0
	for _, c := range curves {
		for _, size := range c.sizes {
			highest = max(highest, c.at(r, size, "sec/op"))
		}
	}
	highest = ceiling(highest)
	d := newDrawing(left+width+30, top+height+45, "What a call costs beyond the stub, as peers and policy keys become more")
	var names []string
	for _, c := range curves {
		names = append(names, c.title)
	}
	d.legend(10, 42, names)
	at := func(size, cost float64) [2]float64 {
		return [2]float64{left + width*math.Log10(size)/decades, top + height*(1-cost/highest)}
	}
	for i := range 6 {
		of := highest * float64(i) / 5
		p := at(1, of)
		d.rule(left, p[1], left+width, p[1])
		label := "0"
		if i > 0 {
			label = duration(of)
		}
		d.text(left-8, p[1]+4, "end", label)
	}
	for decade := range decades + 1 {
		size := math.Pow(10, float64(decade))
		d.text(at(size, 0)[0], top+height+20, "middle", thousands(size))
	}
	d.text(left+width/2, top+height+38, "middle", "peers, or keys")
	for i, c := range curves {
		var points [][2]float64
		for _, size := range c.sizes {
			points = append(points, at(float64(size), c.at(r, size, "sec/op")))
		}
		d.path(points, colours[i])
	}
	return d.end()
}
