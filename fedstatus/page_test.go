package fedstatus

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fedhttp/fedhttp"
)

// hostile are texts that would harm a page which took them as they are.
var hostile = []string{
	`</td></tr></table><script>window.pwned = true; fetch('/stolen')</script>`,
	`</code></style></title></textarea></noscript><script>pwned = 1</script>`,
	`<img src=x onerror="pwned=1"><svg/onload=pwned=1>`,
	`" onmouseover="pwned=1" autofocus onfocus="pwned=1" x="`,
	`' onclick='pwned=1' style='position:fixed;inset:0`,
	"` onload=pwned=1 `",
	`javascript:pwned=1//`,
	`https://user:hidden@h.example/?hidden`,
	`{{.}} {{template "time"}} ${pwned=1} <%= 1 %>`,
	`&lt;script&gt;pwned=1&lt;/script&gt; &#60;b&#62; &amp`,
	`<!-- --!> ]]> <![CDATA[ <?php ?>`,
	"<base href=//evil.example><meta http-equiv=refresh content=0;url=//evil.example><link rel=stylesheet href=//evil.example>",
	"nul \x00\x00 bell \a escape \x1b[31m delete \x7f",
	"lines\r\n\u2028\u2029\v\f\u0085end",
	"right to left \u202ecod.exe\u202c \u2066\u2069 \u200f",
	"invalid \xff\xfe\xc0\xaf\xed\xa0\x80 UTF-8",
	"+ADw-script+AD4-pwned=1+ADw-/script+AD4-",
	strings.Repeat("A", 1<<20),
	strings.Repeat("\u202e", 1<<18),
	strings.Repeat("<script>", 1<<17),
	strings.Repeat("\xff", 1<<20),
	strings.Repeat("word ", 1<<18),
	" ",
}

func rendered(tb testing.TB, format string, src source) string {
	tb.Helper()
	var b bytes.Buffer
	if err := write(&b, format, snapshot(src, noon)); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

func TestHostileText(t *testing.T) {
	t.Parallel()
	for _, text := range hostile {
		checkText(t, text)
	}
}

func FuzzPage(f *testing.F) {
	for _, text := range hostile {
		if len(text) < 1000 {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if text == "" || text == "open" || text == "half-open" {
			return // the page says these in another way
		}
		checkText(t, text)
	})
}

// checkText puts the text into every field, and checks that the page is what it
// is with a plain text but for that text.
func checkText(t *testing.T, text string) {
	t.Helper()
	page, plain := rendered(t, typeHTML, saying(text)), rendered(t, typeHTML, saying("plain"))
	for _, mark := range []string{"<", ">", `"`} {
		if got, want := strings.Count(page, mark), strings.Count(plain, mark); got != want {
			t.Errorf("%.80q: %d times %s, want %d", text, got, mark, want)
		}
	}
	if bad := strings.IndexFunc(page, func(r rune) bool {
		return (r < ' ' || r > '~') && !strings.ContainsRune("\n…“”·", r)
	}); bad >= 0 {
		t.Errorf("%.80q: the page has a %q", text, page[bad:min(bad+8, len(page))])
	}
	if !utf8.ValidString(page) {
		t.Errorf("%.80q: the page is not UTF-8", text)
	}
	if grown := len(page) - len(plain); grown > 100_000 {
		t.Errorf("%.80q: the page is %d bytes longer", text, grown)
	}

	raw := rendered(t, typeJSON, saying(text))
	var s Status
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		t.Errorf("%.80q: %v", text, err)
		return
	}
	for name, got := range map[string]string{
		"peer": s.Peers[0].ID, "origin": s.Peers[0].Origins[0], "breaker": s.Peers[0].Breaker,
		"anchor": s.Peers[0].Anchor.Version, "error": s.Peers[0].Anchor.Error,
		"held": s.HeldKeys[0].Capability, "held peer": s.HeldKeys[0].Peer, "held digest": s.HeldKeys[0].Digest,
		"task id": s.Escalations[0].TaskID, "scope": s.Denials[0].Scope,
	} {
		if got != shown(text) || len(got) > 4*maxText+len(cutMark) {
			t.Errorf("%.80q: %s is %.80q, want %.80q", text, name, got, shown(text))
		}
	}
	if strings.ContainsAny(raw, "<>&") {
		t.Errorf("%.80q: the JSON is HTML to whom it may concern: %.300s", text, raw)
	}
}

func TestEmptyStates(t *testing.T) {
	t.Parallel()
	empty := rendered(t, typeHTML, stub{})
	for _, want := range []string{"No peers are configured.", "No task is held.", "Nothing has been escalated so far.", "No peer has denied a task so far."} {
		if !strings.Contains(empty, want) {
			t.Errorf("lacks %q", want)
		}
	}
	if strings.Contains(empty, "<table") {
		t.Error("has a table of nothing")
	}
	well := fedhttp.PeerStatus{ID: "b", Breaker: "closed", DenialsLeft: -1}
	for _, test := range []struct {
		peers []fedhttp.PeerStatus
		want  string
	}{
		{[]fedhttp.PeerStatus{well}, "The one peer is healthy."},
		{[]fedhttp.PeerStatus{well, well}, "All 2 peers are healthy."},
		{[]fedhttp.PeerStatus{well, {Breaker: "open", DenialsLeft: -1}}, "1 of 2 peers need attention</strong>: 1 breaker open."},
		{[]fedhttp.PeerStatus{{DenialsLeft: 0, Degraded: true}}, "1 of 1 peer needs attention</strong>: 1 denial budget spent, 1 degraded."},
	} {
		if html := rendered(t, typeHTML, stub{peers: test.peers}); !strings.Contains(html, test.want) {
			t.Errorf("lacks %q", test.want)
		}
	}
}

func TestMoment(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		ahead time.Duration
		want  string
	}{
		{0, "just now"},
		{999 * time.Millisecond, "just now"},
		{-999 * time.Millisecond, "just now"},
		{time.Second, "in 1 s"},
		{-59 * time.Second, "59 s ago"},
		{time.Minute, "in 1 min"},
		{-(12*time.Minute + 40*time.Second), "12 min 40 s ago"},
		{2 * time.Hour, "in 2 h"},
		{-(2*time.Hour + 59*time.Second), "2 h ago"},
		{-(26*time.Hour + 5*time.Minute), "1 d 2 h ago"},
		{400 * 24 * time.Hour, "in 400 d"},
	} {
		m := newMoment(noon, noon.Add(test.ahead).UTC())
		if m.Relative != test.want {
			t.Errorf("%v ahead: %q, want %q", test.ahead, m.Relative, test.want)
		}
	}
	if m := newMoment(noon, timeOf(noon)); m.Absolute != "2026-03-04 11:00:00 UTC" || m.Machine != "2026-03-04T11:00:00Z" {
		t.Errorf("%+v", m)
	}
	for seconds, want := range map[float64]string{0: "0 s", -5: "0 s", 0.9: "0 s", 61: "1 min 1 s"} {
		if got := span(seconds); got != want {
			t.Errorf("%v: %q, want %q", seconds, got, want)
		}
	}
}
