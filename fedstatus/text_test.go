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
		"an ellipsis…":               `an ellipsis\u2026`, // only ours stays
		long:                         long,
		long + "y":                   long + "…",
		long[1:] + "é":               long[1:] + "…", // not within a character
		long[1:] + "\xff\xff":        long[1:] + `…`,
	} {
		if got := shown(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestShownURLs(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"https://h.example":                                                    "https://h.example",
		"see https://h.example:8443/a/b.":                                      "see https://h.example:8443/a/b.",
		"https://user:SECRET@h.example/a":                                      "https://h.example/a",
		"https://SECRET@h.example":                                             "https://h.example",
		"https://u:SECRET@SECRET@h.example/a":                                  "https://h.example/a",
		"https://h.example/a?token=SECRET":                                     "https://h.example/a",
		"https://h.example?SECRET":                                             "https://h.example",
		"https://h.example#SECRET":                                             "https://h.example",
		"https://[::1]:8080/a?SECRET":                                          "https://[::1]:8080/a",
		`Get "https://u:SECRET@h.example/?SECRET": EOF`:                        `Get "https://h.example/": EOF`,
		"a https://u:SECRET@h.example/a, nats://SECRET@n.example:4222/?SECRET": "a https://h.example/a, nats://n.example:4222/",
		// Not URLs by the book: which part is the password is anybody's guess.
		"https://u:SECRET/SECRET@h.example/":  "https://[redacted]",
		"https://u:SECRET?SECRET@h.example/":  "https://[redacted]",
		"https://u:SECRET#SECRET@h.example/":  "https://[redacted]",
		"https://u:SECRET\\SECRET@h.example/": "https://[redacted]",
		"https://u:SECRET":                    "https://[redacted]",
		"https://h.example/?mail=a@b.example": "https://[redacted]",
		"://SECRET":                           "://SECRET", // no scheme, no URL
	} {
		if got := shown(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestShownCutURLs cuts a URL wherever it can be cut, before it gets here (as the
// library does) and here.
func TestShownCutURLs(t *testing.T) {
	t.Parallel()
	const url = "https://SECRETuser:SECRETpassword@h.example/?token=SECRET"
	for before := range maxText {
		text := strings.Repeat("x", before) + " " + url + " and more"
		for _, in := range []string{text, text + strings.Repeat("y", maxText), text[:min(len(text), maxText)]} {
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
