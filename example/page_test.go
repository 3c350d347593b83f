package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// What a peer wrote has no < and > of its own, so these are the page's tags.
	tags  = regexp.MustCompile(`<([a-z0-9]+)([^<>]*)>`)
	attrs = regexp.MustCompile(`\s([a-z-]+)\s*=\s*"([^"]*)"`)
)

// TestPage checks the page's text: it needs nothing but itself, and what a peer
// wrote is text in it.
func TestPage(t *testing.T) {
	t.Parallel()
	_, text := samplePage(t, "https://jaeger.example/base")
	if !strings.Contains(text, `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">`) {
		t.Error("no policy")
	}
	known := strings.Fields("a article b bdi body code dd details div dl dt em h1 h2 h3 h4 head header html li main meta nav ol p section small span style " +
		"summary table tbody td th thead time title tr ul")
	harmless := strings.Fields("aria-hidden aria-label aria-labelledby charset class content datetime http-equiv id lang name role scope style")
	links := 0
	for _, tag := range tags.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(known, tag[1]) {
			t.Errorf("a tag %s", tag[0])
		}
		for _, attr := range attrs.FindAllStringSubmatch(tag[2], -1) {
			switch name, value := attr[1], attr[2]; {
			case slices.Contains(harmless, name):
			case name == "href" && tag[1] == "a" && strings.HasPrefix(value, "https://jaeger.example/base/"):
				links++
			case name == "href" && tag[1] == "a" && strings.HasPrefix(value, "#"):
				if !strings.Contains(text, `id="`+value[1:]+`"`) {
					t.Errorf("a link to %s, which is not there", value)
				}
			default:
				t.Errorf("an attribute of %s: %s", tag[1], attr[0])
			}
		}
		if rest := attrs.ReplaceAllString(tag[2], ""); strings.TrimSpace(rest) != "" {
			t.Errorf("an attribute without quotes: %s", tag[0])
		}
	}
	if links != 5 { // the search, three traces, and one link of a span to one that is not on the page
		t.Errorf("%d links to Jaeger, want 5", links)
	}
	for _, css := range []string{"@import", "url(", "@font-face"} {
		if strings.Contains(strings.ToLower(text), css) {
			t.Errorf("%s in the page", css)
		}
	}
	for _, raw := range hostile[:4] {
		if strings.Contains(text, raw) {
			t.Errorf("as it came: %s", raw)
		}
	}
	if strings.ContainsAny(text, "\u202e\u2066") || !strings.Contains(text, `<bdi>\u202eturned\u2066around</bdi>`) {
		t.Error("the direction of the text is a peer's")
	}
	ids := map[string]bool{}
	for _, id := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(text, -1) {
		if ids[id[1]] {
			t.Errorf("two of id %s", id[1])
		}
		ids[id[1]] = true
	}

	for _, want := range []string{
		`<bdi>resend_of</bdi>: <a href="#span-0103000000000000">`,
		`<a href="https://jaeger.example/base/trace/09000000000000000000000000000000?uiFind=0909000000000000">`,
		`<a href="https://jaeger.example/base/search?service=fedhttp-example">`,
		`<dt>elsewhere</dt><dd><bdi>yes</bdi></dd>`,
		`<bdi>first byte</bdi> at 200.0 ms`,
		`error: <bdi>stale</bdi>`,
		`<dt>http.response.status_code</dt><dd><bdi>403</bdi></dd>`,
		`<span>sent twice</span><span>anchor refreshed once</span><span>held for 100 ms</span><span>another call, to org-c: sent once</span><span>7 spans, 400.0 ms</span>`,
		`<bdi>federation records</bdi><small><bdi>to org-b</bdi></small>`,
		`<bdi>federation request</bdi><small><bdi>another call, to org-c</bdi></small>`,
		`<bdi>POST</bdi><small><bdi>of the call to org-c</bdi></small>`,
		`<bdi>POST</bdi> <em>error</em></span>`, // the call's own
		`<bdi>federation.hold</bdi></span>`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}

	if _, text := samplePage(t, ""); regexp.MustCompile(`href="[^#]`).MatchString(text) {
		t.Error("without Jaeger, a link to elsewhere")
	}
}
