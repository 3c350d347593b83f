package fedstatus

import (
	"strings"
	"testing"
)

func TestShown(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxText)
	for in, want := range map[string]string{
		"":                           "",
		"plain":                      "plain",
		`a \ "quoted" <b> & 'c'`:     `a \ "quoted" <b> & 'c'`, // the page's own escaping takes these
		"line\r\nbreak\ttab\x00\x7f": `line\r\nbreak\ttab\x00\x7f`,
		"\u202egnp.exe":              `\u202egnp.exe`,
		"\u200bzero\ufeff":           `\u200bzero\ufeff`,
		"pаypal":                     `p\u0430ypal`, // a Cyrillic а
		"\U0001f600":                 `\U0001f600`,
		"bad \xff\xc3 UTF-8":         `bad \xff\xc3 UTF-8`,
		"an ellipsis…":               `an ellipsis\u2026`,
		long:                         long,
		long + "y":                   long + "...",
		long + "...":                 long + "...", // once
		long + "y...":                long + "...",
		long[3:] + "...":             long[3:] + "...",
		long[1:] + "é":               long[1:] + "...", // not within a character
		long[1:] + "\xff\xff":        long[1:] + "...",
	} {
		if got := shown(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestShownURLs: what is in the URLs of a text is internal/redact's to tell; here
// it is that it is asked, and before anything is cut.
func TestShownURLs(t *testing.T) {
	t.Parallel()
	const url = "https://SECRETuser:SECRETpassword@h.example/?token=SECRET"
	for before := range maxText + 10 {
		text := strings.Repeat("x", before) + " " + url + " and more"
		for _, in := range []string{text, text + strings.Repeat("y", maxText), bounded(text), `"` + text + `"`} {
			if got := shown(in); strings.Contains(got, "SECRET") {
				t.Fatalf("%d bytes before it: %q", before, got)
			}
		}
	}
	far := strings.Repeat("y", maxText/2) + " https://" + strings.Repeat("SECRET", maxRead) + "@h.example"
	if got := shown(far); strings.Contains(got, "SECRET") {
		t.Errorf("a user name of %d bytes: %q", len(far), got)
	}
}

// bounded cuts a text as the library does.
func bounded(s string) string {
	if len(s) <= maxText {
		return s
	}
	return s[:maxText] + cutMark
}
