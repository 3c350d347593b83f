package main

import (
	"fmt"
	"image"
	"image/color"
	"math"
	"slices"
	"strconv"
	"testing"
)

// palettes are what a reader sees. The style is free to change it, and says so here.
var palettes = map[string]map[string]color.RGBA{
	"light": {
		"page": rgb(0xffffff), "stock": rgb(0xbd5a0b), "fedhttp": rgb(0x1f62c9),
		"call": rgb(0x64748b), "attempt": rgb(0x1f62c9), "hold": rgb(0x8a63c9), "refresh": rgb(0x0f8577), "failed": rgb(0xc5302b),
	},
	"dark": {
		"page": rgb(0x101418), "stock": rgb(0xf0954e), "fedhttp": rgb(0x6ca6ff),
		"call": rgb(0x8493a8), "attempt": rgb(0x6ca6ff), "hold": rgb(0xb596f0), "refresh": rgb(0x3fbfae), "failed": rgb(0xff7b72),
	},
}

func rgb(v uint32) color.RGBA {
	return color.RGBA{R: uint8(v >> 16), G: uint8(v >> 8), B: uint8(v), A: 0xff} //nolint:gosec // the bytes of v
}

// window is a way to look at the page.
type window struct {
	width  int
	scheme string
}

func (w window) String() string { return fmt.Sprintf("%d px, %s", w.width, w.scheme) }

var windows = []window{{1280, "light"}, {1280, "dark"}, {400, "light"}, {400, "dark"}}

// stretch is where the longest stretch of a colour is in line y of a picture.
func stretch(img image.Image, y float64, c color.RGBA) (from, length int) {
	start := -1
	for x := img.Bounds().Min.X; x <= img.Bounds().Max.X; x++ {
		if x < img.Bounds().Max.X && alike(img.At(x, int(y)), c) {
			if start < 0 {
				start = x
			}
			continue
		}
		if start >= 0 && x-start > length {
			from, length = start, x-start
		}
		start = -1
	}
	return from, length
}

func alike(a, b color.Color) bool {
	ar, ag, ab, _ := a.RGBA()
	br, bg, bb, _ := b.RGBA()
	const most = 4 << 8
	near := func(x, y uint32) bool { return max(x, y)-min(x, y) <= most }
	return near(ar, br) && near(ag, bg) && near(ab, bb)
}

// shownFigure is a row of figures, and where its two bars are.
type shownFigure struct {
	Label          string
	Stock, Fedhttp struct {
		Text string
		Y    float64 // 0: there is no place for a bar
	}
}

// figures are the rows of an incident as the page has them.
func (b *browser) figures(incident string) []shownFigure {
	b.t.Helper()
	var rows []shownFigure
	b.eval(`(() => {
		const cell = td => {
			const track = td.querySelector('.track')?.getBoundingClientRect();
			return {text: td.textContent.trim(), y: track ? scrollY + track.top + track.height / 2 : 0};
		};
		return [...document.querySelectorAll('table[aria-labelledby="`+incident+`"] tbody tr')].map(tr => ({
			label: tr.querySelector('th').textContent, stock: cell(tr.querySelector('td.stock')), fedhttp: cell(tr.querySelector('td.fedhttp')),
		}));
	})()`, &rows)
	return rows
}

// checkBars measures the bars of each row in the picture: their lengths are as
// their numbers, and the longer one is as long as in every other row.
func checkBars(t *testing.T, img image.Image, w window, rows []shownFigure) {
	t.Helper()
	full := 0
	for _, r := range rows {
		naive, err := strconv.Atoi(r.Stock.Text)
		fed, err2 := strconv.Atoi(r.Fedhttp.Text)
		if err != nil || err2 != nil {
			if r.Stock.Y != 0 || r.Fedhttp.Y != 0 {
				t.Errorf("%v: %s: %q and %q with a bar", w, r.Label, r.Stock.Text, r.Fedhttp.Text)
			}
			continue
		}
		naiveFrom, naiveLength := stretch(img, r.Stock.Y, palettes[w.scheme]["stock"])
		fedFrom, fedLength := stretch(img, r.Fedhttp.Y, palettes[w.scheme]["fedhttp"])
		if naive > 0 && fed > 0 && naiveFrom != fedFrom {
			t.Errorf("%v: %s: the bars begin at %d and %d", w, r.Label, naiveFrom, fedFrom)
		}
		if naive == 0 && fed == 0 {
			if naiveLength+fedLength > 0 {
				t.Errorf("%v: %s: bars for nothing", w, r.Label)
			}
			continue
		}
		longer := max(naiveLength, fedLength)
		if full == 0 {
			full = longer
		}
		if longer != full || longer < w.width/4 {
			t.Errorf("%v: %s: the longer bar is %d px, another row's is %d px", w, r.Label, longer, full)
		}
		for _, bar := range []struct{ number, length int }{{naive, naiveLength}, {fed, fedLength}} {
			want := float64(full) * float64(bar.number) / float64(max(naive, fed))
			if bar.number > 0 {
				want = max(want, 2) // so that it can be seen
			}
			if math.Abs(float64(bar.length)-want) > 1.5 {
				t.Errorf("%v: %s: the bar of %d is %d px, want %.1f, for %d is %d px", w, r.Label, bar.number, bar.length, want, max(naive, fed), full)
			}
		}
	}
}

// shownTrace is a waterfall, and where its rows are.
type shownTrace struct {
	Kind  string
	Spans []struct {
		Name, Role     string
		Y, Left, Width float64 // of the timeline
		Bar, Thickness float64 // of the bar
		Indent         float64
	}
}

func (b *browser) waterfalls() []shownTrace {
	b.t.Helper()
	var traces []shownTrace
	b.eval(`[...document.querySelectorAll('.trace')].map(trace => ({
		kind: trace.querySelector('h3').textContent,
		spans: [...trace.querySelectorAll('details')].map(span => {
			const time = span.querySelector('.time').getBoundingClientRect();
			return {
				name: span.querySelector('summary bdi').textContent,
				role: span.classList.contains('failed') ? 'failed' : span.classList[1],
				y: scrollY + time.top + time.height / 2, left: time.left, width: time.width,
				bar: span.querySelector('.time .bar').getBoundingClientRect().width,
				thickness: span.querySelector('.time .bar').getBoundingClientRect().height,
				indent: span.querySelector('summary bdi').getBoundingClientRect().left,
			};
		}),
	}))`, &traces)
	return traces
}

// checkFit checks that nothing sticks out to the right, and opens all details
// for that.
func checkFit(t *testing.T, b *browser, w window) {
	t.Helper()
	var width int
	var out []string
	b.eval(`(document.querySelectorAll('details').forEach(d => d.open = true), document.documentElement.scrollWidth)`, &width)
	b.eval(fmt.Sprintf(`[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > %d.5).map(e => e.outerHTML.slice(0, 200))`, w.width), &out)
	if width > w.width || len(out) > 0 {
		t.Errorf("%v: the page is %d px wide; these stick out:\n%q", w, width, out)
	}
}

// checkContrast checks that all text can be read: at least 4.5 to 1, as WCAG
// wants it.
func checkContrast(t *testing.T, b *browser, w window) {
	t.Helper()
	var bad []string
	b.eval(`(() => {
		const parse = c => c.match(/[\d.]+/g).map(Number);
		const luminance = c => {
			const [r, g, b] = c.slice(0, 3).map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
			return 0.2126 * r + 0.7152 * g + 0.0722 * b;
		};
		const background = e => {
			for (; e; e = e.parentElement) {
				const c = parse(getComputedStyle(e).backgroundColor);
				if (c.length < 4 || c[3] > 0) return c;
			}
			return [255, 255, 255];
		};
		const bad = [];
		for (const e of document.querySelectorAll('body *')) {
			if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
			const [a, b] = [luminance(parse(getComputedStyle(e).color)), luminance(background(e))].sort((x, y) => y - x);
			const contrast = (a + 0.05) / (b + 0.05);
			if (contrast < 4.5) bad.push(contrast.toFixed(2) + ' ' + e.className + ' ' + e.textContent.slice(0, 40));
		}
		return bad;
	})()`, &bad)
	if len(bad) > 0 {
		t.Errorf("%v: too little contrast: %q", w, bad)
	}
}

// checkAlone checks that the browser asked for the page and nothing else, and
// that the page is what it says.
func checkAlone(t *testing.T, b *browser) {
	t.Helper()
	urls, complaints := b.requested()
	if len(urls) != 1 || len(complaints) > 0 {
		t.Errorf("asked for %q; Chromium says %q", urls, complaints)
	}
	var title string
	var foreign int
	b.eval(`document.title`, &title)
	b.eval(`document.querySelectorAll('script, img, iframe, object, embed, link, form, svg, base').length`, &foreign)
	if title != "fedhttp: two incidents, replayed" || foreign != 0 {
		t.Errorf("the title is %q; %d elements do not belong there", title, foreign)
	}
}

// TestPicture looks at a page of known sizes.
func TestPicture(t *testing.T) {
	t.Parallel()
	b := openChromium(t)
	file, _ := samplePage(t, "https://jaeger.example")
	for _, w := range windows {
		b.resize(w.width, 900, w.scheme)
		b.open(file)
		img := b.picture(fmt.Sprintf("sample-%s-%d", w.scheme, w.width))
		if width := img.Bounds().Dx(); width != w.width || !alike(img.At(width-1, 0), palettes[w.scheme]["page"]) {
			t.Errorf("%v: the picture is %d px wide, and %v at its corner", w, width, img.At(width-1, 0))
		}
		checkAlone(t, b)

		rows := b.figures("boundary")
		if len(rows) != len(sampleResult().boundaryRows()) {
			t.Fatalf("%d rows", len(rows))
		}
		checkBars(t, img, w, rows)
		checkBars(t, img, w, b.figures("preflight"))
		// One ratio by hand: 480 denials and 120.
		row := rows[slices.IndexFunc(rows, func(r shownFigure) bool { return r.Label == "denials against A" })]
		_, naive := stretch(img, row.Stock.Y, palettes[w.scheme]["stock"])
		_, fed := stretch(img, row.Fedhttp.Y, palettes[w.scheme]["fedhttp"])
		if ratio := float64(naive) / float64(fed); math.Abs(ratio-4) > 0.1 {
			t.Errorf("%v: the bars of 480 and 120 are %d and %d px", w, naive, fed)
		}

		shown := b.waterfalls()
		if len(shown) != 3 || shown[0].Kind != "delivered after refresh" || len(shown[0].Spans) != 7 || len(shown[1].Spans) != 2 {
			t.Fatalf("the traces are %+v", shown)
		}
		for i, want := range []struct {
			name, role     string
			from, to, deep float64 // percent of the time line; deep in steps
		}{
			{"federation records", "call", 0, 95, 0},
			{"federation.hold", "hold", 0, 25, 1},
			{"federation request", "call", 5, 20, 1},
			{"POST", "attempt", 10, 20, 2},
			{"POST", "failed", 25, 75, 1},
			{"federation.anchor.refresh", "refresh", 50, 60, 1},
			{"POST", "attempt", 75, 100, 1},
		} {
			span := shown[0].Spans[i]
			from, length := stretch(img, span.Y, palettes[w.scheme][want.role])
			if i == 4 {
				// The mark of the event at 50 % parts it in two.
				_, half := stretch(img, span.Y, palettes[w.scheme][want.role])
				if math.Abs(float64(half)-span.Width/4) > 3 {
					t.Errorf("%v: the half before the event is %d px of %.1f", w, half, span.Width)
				}
				from, length = int(span.Left+span.Width/4), int(span.Width/2)
			}
			wantFrom, wantLength := span.Left+span.Width*want.from/100, span.Width*(want.to-want.from)/100
			if span.Name != want.name || span.Role != want.role || math.Abs(float64(from)-wantFrom) > 2 || math.Abs(float64(length)-wantLength) > 2 {
				t.Errorf("%v: %s (%s) is from %d for %d px, want %s (%s) from %.1f for %.1f px", w, span.Name, span.Role, from, length, want.name, want.role, wantFrom, wantLength)
			}
			if thin := span.Thickness < 8; thin != (i == 2 || i == 3) {
				t.Errorf("%v: the bar of %s is %.1f px thick, and another call's: %v", w, span.Name, span.Thickness, i == 2 || i == 3)
			}
			if step := span.Indent - shown[0].Spans[0].Indent; (step > 5) != (want.deep > 0) {
				t.Errorf("%v: %s is indented by %.1f px", w, span.Name, step)
			}
		}
		if _, length := stretch(img, shown[2].Spans[0].Y, palettes[w.scheme]["call"]); length < 2 {
			t.Errorf("%v: a span that took no time cannot be seen", w)
		}
		checkFit(t, b, w)
		checkContrast(t, b, w)
	}
}
