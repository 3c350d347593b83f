package redact_test

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/fedhttp/fedhttp/internal/redact"
)

func TestText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                    "",
		"plain // text: a@b?c#d":              "plain // text: a@b?c#d",
		"https://h.example":                   "https://h.example",
		"see https://h.example:8443/a/b.":     "see https://h.example:8443/a/b.",
		"https://user:SECRET@h.example/a":     "https://h.example/a",
		"https://SECRET@h.example":            "https://h.example",
		"https://u:SECRET@SECRET@h.example/a": "https://h.example/a",
		"https://h.example/a?token=SECRET":    "https://h.example/a",
		"https://h.example?SECRET":            "https://h.example",
		"https://h.example#SECRET":            "https://h.example",
		"https://h.example/a?SECRET SECURE":   "https://h.example/a SECURE",
		"https://[::1]:8080/a?SECRET":         "https://[::1]:8080/a",
		"a https://u:SECRET@h.example/a, nats://SECRET@n.example:4222/?SECRET": "a https://h.example/a, nats://n.example:4222/",
		"a\thttps://h.example/?SECRET\nb":                                      "a\thttps://h.example/\nb",
		"https://h.example/?u=https://u:SECRET":                                "https://h.example/",

		// What is not quoted may have quotes, and stands among punctuation.
		`https://h.example/?a="SECRET"&b=SECRET`:                  `https://h.example/`,
		"<https://h.example>; (https://h.example/a?SECRET), 'b'":  "<https://h.example>; (https://h.example/a), 'b'",
		"'https://h.example', `http://h.example/a?SECRET`, https": "'https://h.example', `http://h.example/a`, https",

		// Quoted, once and more often.
		`Get "https://u:SECRET@h.example/?SECRET": EOF`:      `Get "https://h.example/": EOF`,
		`"https://h.example/?a=\"SECRET SECRET\"": EOF`:      `"https://h.example/": EOF`,
		`"https://h.example/?SECRET\\": EOF`:                 `"https://h.example/": EOF`,
		`"https://h.example/?SECRET\\\"SECRET": EOF`:         `"https://h.example/": EOF`,
		`"https://u:SECRET\"SECRET@h.example/"`:              `"https://[redacted]"`,
		`"Get \"https://h.example/?SECRET SECRET\": EOF"`:    `"Get \"https://h.example/\": EOF"`,
		`"Get \"https://h.example/?a=\\\"SECRET\": EOF"`:     `"Get \"https://h.example/\": EOF"`,
		`"Get \"https://h.example/?SECRET\\\\\": EOF"`:       `"Get \"https://h.example/\": EOF"`,
		`"Get \"https://h.example/a\": EOF"`:                 `"Get \"https://h.example/a\": EOF"`,
		`"\"Get \\\"https://h.example/?SECRET\\\": EOF\" x"`: `"\"Get \\\"https://h.example/\\\": EOF\" x"`,
		`"\"https://h.example/?SECRET" and more`:             `"\"https://h.example/" and more`,
		`{"a":"https://h.example/?SECRET","b":"://SECRET@"}`: `{"a":"https://h.example/","b":"://"}`,
		`"https://h.example/a b": EOF`:                       `"https://h.example/a b": EOF`,

		// Not URLs by the book: which part is the password is anybody's guess.
		"https://u:SECRET/SECRET@h.example/":  "https://[redacted]",
		"https://u:SECRET?SECRET@h.example/":  "https://[redacted]",
		"https://u:SECRET#SECRET@h.example/":  "https://[redacted]",
		"https://u:SECRET\\SECRET@h.example/": "https://[redacted]",
		"https://u:SECRET":                    "https://[redacted]",
		"https://h.example/?mail=a@b.example": "https://[redacted]",
		"://u:SECRET@h.example":               "://h.example",

		// Cut.
		"https://SECRET...":                    "https://[redacted]...",
		"https://u:SECRET?SECRET...":           "https://[redacted]...",
		`"https://SECRET...": EOF`:             `"https://[redacted]...": EOF`,
		`Get "https://SECRET SECRET`:           `Get "https://[redacted]`,
		`Get "https://SECRET SECRET...`:        `Get "https://[redacted]...`,
		`Get "https://SECRET\"`:                `Get "https://[redacted]`,
		"https://...":                          "https://[redacted]...",
		"https://h.example/a...?not cut, but":  "https://[redacted] cut, but",
		"https://h.example/a, and the text...": "https://h.example/a, and the text...",
	} {
		if got := redact.Text(in); got != want {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
	}
}

func TestTextAllocs(t *testing.T) {
	for _, s := range []string{"", "Get: connection refused, a@b?c", strings.Repeat("x:/", 1000)} {
		if n := testing.AllocsPerRun(100, func() { redact.Text(s) }); n != 0 {
			t.Errorf("%.20q: %v allocations, want none", s, n)
		}
	}
}

// FuzzText: a text that was redacted stays as it is, and is not much longer; what
// is secret in a URL is not in the text that the URL was written into, with or
// without quotes, whatever else is in the URL.
func FuzzText(f *testing.F) {
	for _, seed := range [][5]string{
		{`Get "https://u:p@h.example/?a": EOF`, "user", "password", "/a", "token=t"},
		{`"\"https://h/?\\\"a" x://..., y://h/a...?\`, `"`, `\`, `/\"`, `"\ #`},
		{`://"://`, "@", "/", "/@", "?"},
		{`"x://h/a\?b"c://d, <e://[::1%25a]:80>`, "", ":", "/...", "..."},
		{"", "é", "\x00", "/a b", "a b"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4])
	}
	const secret = "SECRET"
	f.Fuzz(func(t *testing.T, text, user, password, path, query string) {
		once := redact.Text(text)
		if again := redact.Text(once); again != once {
			t.Errorf("%q\nonce  %q\ntwice %q", text, once, again)
		}
		if most := len(text) + len("[redacted]")*strings.Count(text, "://"); len(once) > most {
			t.Errorf("%q has become %q: %d bytes, want %d at most", text, once, len(once), most)
		}

		if strings.Contains(path, secret) {
			return
		}
		u := url.URL{
			Scheme: "https", Host: "h.example", Path: "/" + path,
			User:     url.UserPassword(user+secret, secret+password+secret),
			RawQuery: secret + query + secret, Fragment: secret + query + secret,
		}
		quoted := strconv.Quote(u.String())
		for _, in := range []string{
			strings.Join(strings.Fields(u.String()), ""), // a space would end it
			quoted,
			strconv.Quote("Get " + quoted + ": EOF"),
			strconv.QuoteToASCII(fmt.Sprintf("%q: %q", query, "Get "+quoted)),
		} {
			if got := redact.Text("Get " + in + " failed"); strings.Contains(got, secret) || !strings.HasSuffix(got, " failed") {
				t.Errorf("%s\nbecame %s", in, got)
			}
		}
	})
}
