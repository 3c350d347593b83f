//go:build unix

package fedstatus

import (
	"bytes"
	"flag"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var shots = flag.String("fedstatus.shots", "", "a folder that takes screenshots of the page")

// served is a handler on a real server, which also counts who else is asked.
type served struct {
	URL string

	mu    sync.Mutex
	other []string
}

func serve(t *testing.T, src source) *served {
	t.Helper()
	s := &served{}
	mux := http.NewServeMux()
	mux.Handle("/federation", handler{src})
	mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.other = append(s.other, r.Method+" "+r.URL.Path)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.URL = server.URL + "/federation"
	return s
}

// skeleton is the page's elements with the names of their attributes, and of
// those attributes that could do something the values: all but its words.
const skeleton = `Array.from(document.querySelectorAll('*'), e => e.tagName + ' ' + Array.from(e.attributes, a =>
	/^(datetime)$/.test(a.name) ? a.name : a.name + '=' + a.value).join(' '))`

// overflow is what reaches beyond the column of the page's text.
const overflow = `(() => {
	const column = (document.querySelector('main') ?? document.body).getBoundingClientRect();
	return [...Array.from(document.querySelectorAll('body *')).filter(e => {
		const r = e.getBoundingClientRect();
		return !e.closest('thead') && r.width && (r.right > column.right + 1 || r.left < column.left - 1);
	}).map(e => e.tagName + ' ' + e.textContent.slice(0, 40)),
		...(document.documentElement.scrollWidth > innerWidth ? ['the page'] : [])];
})()`

func TestChromium(t *testing.T) {
	b := startBrowser(t)
	t.Run("hostile", func(t *testing.T) { testHostilePage(t, b) })
	t.Run("layout", func(t *testing.T) { testLayout(t, b) })
	t.Run("colours", func(t *testing.T) { testColours(t, b) })
	t.Run("contrast", func(t *testing.T) { testContrast(t, b) })
	t.Run("accessible", func(t *testing.T) { testAccessible(t, b) })
	t.Run("detector", func(t *testing.T) { testDetector(t, b) })
}

// testHostilePage: whatever the texts are, the page's elements are those that it
// has with plain ones, nothing runs and nobody else is asked. It holds without the
// Content-Security-Policy, which is there should it ever not hold.
func testHostilePage(t *testing.T, b *browser) {
	texts := make([]string, len(hostile))
	for i := range texts {
		texts[i] = "plain"
	}
	var want []string
	b.open(t, serve(t, saying(texts...)).URL, view{width: 1200}).eval(t, skeleton, &want)
	if len(want) < 100*len(hostile) {
		t.Fatalf("the plain page has %d elements", len(want))
	}
	for _, v := range []view{{width: 1200}, {width: 400, bypassCSP: true}} {
		s := serve(t, saying(hostile...))
		p := b.open(t, s.URL, v)
		var got []string
		p.eval(t, skeleton, &got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%+v: elements: -want +got\n%.2000s", v, diff)
		}
		var pwned string
		p.eval(t, "typeof window.pwned", &pwned)
		if pwned != "undefined" {
			t.Errorf("%+v: a script ran: %s", v, pwned)
		}
		checkQuiet(t, p, s)
		var over, beyond []string
		p.eval(t, overflow, &over)
		if len(over) > 0 {
			t.Errorf("%+v: beyond the page's width: %.10q", v, over)
		}
		// Nothing that is not plain reached the text either.
		p.eval(t, `document.body.innerText.match(/[^\n\t -~…“”·]/gu) ?? []`, &beyond)
		if len(beyond) > 0 {
			t.Errorf("%+v: in the text: %q", v, beyond)
		}
		if *shots != "" {
			p.keep(t, fmt.Sprintf("hostile-%d.png", v.width), p.screenshot(t))
		}
	}
}

func checkQuiet(t *testing.T, p *tab, s *served) {
	t.Helper()
	if trouble := p.trouble(); len(trouble) > 0 {
		t.Errorf("the page is not quiet: %.500q", trouble)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, request := range s.other {
		if request != "GET /favicon.ico" {
			t.Errorf("the page asked for %s", request)
		}
	}
}

// testLayout: nothing reaches beyond the page at any width.
func testLayout(t *testing.T, b *browser) {
	for name, src := range map[string]source{"day": aDay(time.Now()), "empty": stub{}, "healthy": stub{peers: aDay(time.Now()).peers[:1]}} {
		s := serve(t, src)
		for _, width := range []int{320, 400, 800, 1000, 1180, 1185, 1200, 1920} {
			p := b.open(t, s.URL, view{width: width})
			var over []string
			p.eval(t, overflow, &over)
			if len(over) > 0 {
				t.Errorf("%s at %d: beyond the page's width: %.10q", name, width, over)
			}
			checkQuiet(t, p, s)
			if *shots != "" {
				p.keep(t, fmt.Sprintf("%s-%d.png", name, width), p.screenshot(t))
			}
		}
	}
}

func decodePNG(t *testing.T, raw []byte) image.Image {
	t.Helper()
	im, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// testColours looks at the picture: what is said in words is in its colour too,
// and the ground is light or dark as the reader wants it.
func testColours(t *testing.T, b *browser) {
	s := serve(t, aDay(time.Now()))
	for _, v := range []view{{width: 1200}, {width: 1200, dark: true}, {width: 400}, {width: 400, dark: true}} {
		p := b.open(t, s.URL, v)
		shot := p.screenshot(t)
		im := decodePNG(t, shot)
		if v.dark {
			p.keep(t, fmt.Sprintf("day-%d-dark.png", v.width), shot)
		}
		if im.Bounds().Dx() != v.width || im.Bounds().Dy() < 1000 {
			t.Errorf("%+v: the picture is %v", v, im.Bounds())
		}
		r, g, bl, _ := im.At(2, 2).RGBA()
		if light := r+g+bl > 3*0x8000; light == v.dark {
			t.Errorf("%+v: the ground is %v", v, im.At(2, 2))
		}
		var badges []struct {
			Text       string
			X, Y, W, H float64
		}
		p.eval(t, `Array.from(document.querySelectorAll('#peers .badge'), e => { const r = e.getBoundingClientRect();
			return {Text: e.textContent, X: r.x + scrollX, Y: r.y + scrollY, W: r.width, H: r.height} })`, &badges)
		want := map[string]string{
			"breaker open": "red", "anchor expired": "red", "denial budget spent": "red", "2 escalations": "red",
			"degraded": "yellow", "anchor refresh failed": "yellow", "healthy": "green",
		}
		seen := make(map[string]bool)
		for _, badge := range badges {
			seen[badge.Text] = true
			// Inside of the border, left of the words.
			at := image.Pt(int(badge.X+5), int(badge.Y+badge.H/2))
			if got := hue(im, at); got != want[badge.Text] {
				t.Errorf("%+v: %q is %s (%v at %v), want %s", v, badge.Text, got, im.At(at.X, at.Y), at, want[badge.Text])
			}
		}
		if len(seen) != len(want) {
			t.Errorf("%+v: badges: %v", v, seen)
		}
	}
}

func hue(im image.Image, at image.Point) string {
	r, g, b, _ := im.At(at.X, at.Y).RGBA()
	switch {
	case g > r && g > b:
		return "green"
	case r > g && g > b+0x400:
		return "yellow"
	case r > g:
		return "red"
	}
	return "none"
}

// testContrast: every text stands out from its ground by 4.5 to 1 (WCAG 2, AA).
func testContrast(t *testing.T, b *browser) {
	const faint = `(() => {
		const rgb = c => c.match(/[\d.]+/g).map(Number);
		const light = c => { const [r, g, b] = rgb(c).map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
			return .2126 * r + .7152 * g + .0722 * b };
		const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
			if (rgb(c).length < 4 || rgb(c)[3] === 1) return c } return 'rgb(0, 0, 0)' };
		return Array.from(document.querySelectorAll('body *')).filter(e => Array.from(e.childNodes).some(n => n.nodeType === 3 && n.data.trim()))
			.map(e => { const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
				return {text: e.textContent.slice(0, 40), ratio: (a + .05) / (b + .05)} })
	})()`
	s := serve(t, aDay(time.Now()))
	for _, v := range []view{{width: 1200}, {width: 1200, dark: true}, {width: 400}, {width: 400, dark: true}} {
		var texts []struct {
			Text  string
			Ratio float64
		}
		b.open(t, s.URL, v).eval(t, faint, &texts)
		if len(texts) < 100 {
			t.Errorf("%+v: %d texts", v, len(texts))
		}
		for _, text := range texts {
			if text.Ratio < 4.5 {
				t.Errorf("%+v: %q has a contrast of %.1f", v, text.Text, text.Ratio)
			}
		}
	}
}

// testAccessible asks for what a screen reader is told, on a phone too, where the
// tables do not look like tables.
func testAccessible(t *testing.T, b *browser) {
	s := serve(t, aDay(time.Now()))
	for _, width := range []int{1200, 400} {
		var tree struct {
			Nodes []struct {
				Ignored    bool
				Role, Name struct{ Value any }
			}
		}
		p := b.open(t, s.URL, view{width: width})
		// Some browsers take a table's meaning from how it is displayed, unless
		// it is said.
		var unsaid []string
		p.eval(t, `Array.from(document.querySelectorAll('table, thead, tbody, tr, th, td'), e => e.getAttribute('role') ? '' : e.outerHTML).filter(s => s)`, &unsaid)
		if len(unsaid) > 0 {
			t.Errorf("at %d: without a role: %.200q", width, unsaid)
		}
		p.do(t, "Accessibility.getFullAXTree", nil, &tree)
		roles := make(map[string]int)
		var tables []string
		for _, n := range tree.Nodes {
			if n.Ignored {
				continue
			}
			role := fmt.Sprint(n.Role.Value)
			roles[role]++
			if role == "table" {
				tables = append(tables, fmt.Sprint(n.Name.Value))
			}
		}
		wantTables := []string{
			"5 peers, those that need attention first.", "9 tasks under 2 keys, the longest wait first.",
			"The last 3, the newest first.", "The last 2, the newest first.",
		}
		if diff := cmp.Diff(wantTables, tables); diff != "" {
			t.Errorf("at %d: tables: -want +got\n%s", width, diff)
		}
		for role, want := range map[string]int{
			"columnheader": 5 + 5 + 6 + 6, "rowheader": 5 + 2 + 3 + 2, "row": 4 + 5 + 2 + 3 + 2, "cell": 5*4 + 2*4 + 3*5 + 2*5,
			"main": 1, "heading": 5, "region": 4,
		} {
			if roles[role] != want {
				t.Errorf("at %d: %d of the role %s, want %d", width, roles[role], role, want)
			}
		}
	}
}

// testDetector: what the tests above look for they find, where a page does not
// escape what it shows.
func testDetector(t *testing.T, b *browser) {
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			return
		}
		w.Header().Set("Content-Type", "text/html")
		if !strings.Contains(r.URL.RawQuery, "bare") {
			w.Header().Set("Content-Security-Policy", contentSecurityPolicy)
		}
		_, _ = fmt.Fprint(w, `<!DOCTYPE html><style>`+pageCSS+`</style><div class="badge bad">x</div>`+hostile[0]+`<p style="width: 2000px">wide</p>`)
	}))
	defer bad.Close()

	p := b.open(t, bad.URL+"/?bare", view{width: 400})
	p.wait(t, "Network.requestWillBeSent", "/stolen")
	var ran bool
	p.eval(t, "window.pwned === true", &ran)
	var over []string
	p.eval(t, overflow, &over)
	if !ran || len(over) == 0 || len(p.trouble()) == 0 {
		t.Errorf("script ran: %v, beyond the width: %q, trouble: %q", ran, over, p.trouble())
	}

	// And the policy stops what a mistake would let in, but not the page's style.
	p = b.open(t, bad.URL, view{width: 400})
	p.wait(t, "Log.entryAdded", "Content Security Policy")
	var colour string
	p.eval(t, "window.pwned === undefined ? getComputedStyle(document.querySelector('.bad')).color : 'a script ran'", &colour)
	if colour != "rgb(161, 20, 20)" || len(p.trouble()) == 0 {
		t.Errorf("the badge's colour is %s, trouble: %q", colour, p.trouble())
	}
}

func (p *tab) keep(t *testing.T, name string, shot []byte) {
	t.Helper()
	if *shots == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(*shots, name), shot, 0o600); err != nil {
		t.Error(err)
	}
}
