package fedstatus

import (
	"strings"
	"testing"
)

func TestNegotiate(t *testing.T) {
	t.Parallel()
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
	for _, test := range []struct {
		accept []string
		want   string // "": neither
	}{
		{nil, typeHTML},
		{[]string{""}, typeHTML},
		{[]string{" , ,"}, typeHTML},
		{[]string{"*/*"}, typeHTML},
		{[]string{"*"}, typeHTML},
		{[]string{browser}, typeHTML},
		{[]string{"text/html"}, typeHTML},
		{[]string{"text/*"}, typeHTML},
		{[]string{"application/json"}, typeJSON},
		{[]string{"Application/JSON"}, typeJSON},
		{[]string{"application/json; charset=utf-8"}, typeJSON},
		{[]string{"application/*"}, typeJSON},
		{[]string{"application/json, text/plain, */*"}, typeJSON}, // as some JavaScript clients
		{[]string{"text/html", "application/json"}, typeHTML},
		{[]string{"text/html;q=0.5", "application/json"}, typeJSON},
		{[]string{"application/json;q=0.5, text/html;q=0.6"}, typeHTML},
		{[]string{"application/json;q=0.5, text/html;q=0.4"}, typeJSON},
		{[]string{"*/*, text/html;q=0"}, typeJSON},
		{[]string{"text/html;q=0, */*"}, typeJSON},
		{[]string{"*/*;q=0.9, text/html;q=0.1, text/*;q=1"}, typeJSON}, // the most specific range counts
		{[]string{"application/json;q=0, application/*"}, ""},
		{[]string{"text/html;q=0, application/json;q=0.000"}, ""},
		{[]string{"*/*;q=0"}, ""},
		{[]string{"image/png"}, ""},
		{[]string{"text/html;q=2, application/json;q=0.1"}, typeJSON},           // no weight
		{[]string{"text/html;q=NaN, application/json;q=0.1"}, typeJSON},         // no weight
		{[]string{"text/html;q=x, application/json;q=0.1"}, typeJSON},           // no weight
		{[]string{"text/html;q=-1, application/json;q=0.1"}, typeJSON},          // no weight
		{[]string{`a/b;c="d, text/html, e", application/json;q=0.5`}, typeJSON}, // a comma in quotes
		{[]string{`a/b;c="d\", text/html, e", application/json;q=0.5`}, typeJSON},
		{[]string{"garbage"}, ""},
		{[]string{";;;, text/html"}, typeHTML},
		{[]string{"\x00\xff"}, ""},
		{[]string{"application/json," + strings.Repeat("a/b,", maxAccept)}, typeJSON},
		{[]string{"*/*;q=0.5," + strings.Repeat(" ", maxAccept-len("*/*;q=0.5,text/html;q=0")) + "text/html;q=0.9"}, typeHTML},
		{[]string{strings.Repeat("a/b,", maxAccept) + "application/json"}, ""}, // beyond what is read
	} {
		got, ok := negotiate(test.accept)
		if ok != (test.want != "") || ok && got != test.want {
			t.Errorf("%.80q: %q, %v, want %q", test.accept, got, ok, test.want)
		}
	}
}

func FuzzNegotiate(f *testing.F) {
	f.Add("text/html;q=0.1, application/json")
	f.Add(`a/b;c="d,\"", *`)
	f.Fuzz(func(t *testing.T, accept string) {
		if got, ok := negotiate([]string{accept}); got != typeHTML && got != typeJSON {
			t.Errorf("%q, %v", got, ok)
		}
	})
}
