package fedstatus

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

// get asks h as a client would.
func get(h http.Handler, method, accept string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/federation", nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestHandler(t *testing.T) {
	t.Parallel()
	h := handler{aDay(time.Now())}
	for _, test := range []struct {
		method, accept string
		status         int
		contentType    string
		starts         string
	}{
		{"GET", "", 200, "text/html; charset=utf-8", "<!DOCTYPE html>"},
		{"GET", "application/json", 200, "application/json", `{"at":"`},
		{"HEAD", "application/json", 200, "application/json", `{"at":"`}, // net/http sends no body
		{"GET", "image/png", 406, "text/plain; charset=utf-8", "there is text/html and application/json\n"},
		{"POST", "", 405, "text/plain; charset=utf-8", "want GET or HEAD\n"},
		{"DELETE", "image/png", 405, "text/plain; charset=utf-8", "want GET or HEAD\n"},
		{"OPTIONS", "application/json", 405, "text/plain; charset=utf-8", "want GET or HEAD\n"},
	} {
		t.Run(test.method+" "+test.accept, func(t *testing.T) {
			t.Parallel()
			w := get(h, test.method, test.accept)
			if w.Code != test.status || !strings.HasPrefix(w.Body.String(), test.starts) {
				t.Errorf("%d %.60q, want %d %q", w.Code, w.Body, test.status, test.starts)
			}
			want := map[string]string{
				"Content-Type":                 test.contentType,
				"Vary":                         "Accept",
				"Cache-Control":                "no-store",
				"X-Content-Type-Options":       "nosniff",
				"Referrer-Policy":              "no-referrer",
				"Cross-Origin-Resource-Policy": "same-origin",
			}
			if test.status == 405 {
				want["Allow"] = "GET, HEAD"
			}
			if test.status == 200 {
				want["Content-Length"] = strconv.Itoa(w.Body.Len())
			}
			for name, value := range want {
				if got := w.Header().Get(name); got != value {
					t.Errorf("%s: %q, want %q", name, got, value)
				}
			}
			csp := w.Header().Get("Content-Security-Policy")
			for _, directive := range []string{"default-src 'none'", "style-src 'sha256-", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"} {
				if !strings.Contains(csp, directive) {
					t.Errorf("Content-Security-Policy: %q lacks %q", csp, directive)
				}
			}
			if strings.Contains(csp, "unsafe") || strings.Contains(csp, "script-src") {
				t.Errorf("Content-Security-Policy: %q", csp)
			}
		})
	}
}

func TestHandlerHead(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(handler{aDay(time.Now())})
	defer s.Close()
	resp, err := s.Client().Head(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.ContentLength < 1000 {
		t.Errorf("%s, %d bytes", resp.Status, resp.ContentLength)
	}
}

func TestHandlerOfNil(t *testing.T) {
	t.Parallel()
	defer func() {
		if fault, _ := recover().(string); !strings.Contains(fault, "fedstatus: Handler") || !strings.Contains(fault, "nil") {
			t.Errorf("panicked with %q", fault)
		}
	}()
	Handler(nil)
	t.Error("took nil")
}

func TestHandlerOfZero(t *testing.T) {
	t.Parallel()
	h := Handler(&fedhttp.Transport{})
	if w := get(h, "GET", ""); w.Code != 200 || strings.Count(w.Body.String(), "No peers are configured.") != 2 {
		t.Errorf("%d, %s", w.Code, w.Body)
	}
	w := get(h, "GET", "application/json")
	for _, want := range []string{`"peers":[]`, `"held_keys":[]`, `"escalations":[]`, `"denials":[]`} {
		if w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d, %s lacks %s", w.Code, w.Body, want)
		}
	}
}
