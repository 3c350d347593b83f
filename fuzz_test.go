package fedhttp

import (
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// A fuzz target for every parser of what a peer or a configuration says. Each
// holds the parser to what it promises, not only to not panicking.

// FuzzOrigin: what parseOrigin accepts, originOf reads in the same way from the
// URL of a request; the text of an origin is that origin again, and its own
// normal form.
func FuzzOrigin(f *testing.F) {
	for _, seed := range []string{
		"https://registry.b.example", "HTTPS://B.example.:0443/", "http://[::1]:80", "http://[fe80::1%25eth0]", "http://127.0.0.1:65535",
		"https://b.example:", "https://b..example", "https://b.example..", "https://xn--bcher-kva.example", "https://bücher.example",
		"https://user:secret@b.example", "https://b.example/x?y#z", "https:b.example", "//b.example", "https://[::ffff:1.2.3.4]", "https://0x7f.1",
		"http://[::1%25]]", "https://b.example:99999", "https://%41.example", "\x00", "https://b.example:+1", "https://.", "http://[::1%25a/b]",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, parseErr := url.Parse(s)
		o, err := parseOrigin(s)
		if err != nil {
			if parseErr == nil {
				_, _ = originOf(u) // must not panic
			}
			return
		}
		if parseErr != nil {
			t.Fatalf("%q is no URL, and an origin", s)
		}
		if ofRequest, err := originOf(u); err != nil || ofRequest != o {
			t.Errorf("%q is %v as an origin, and %v, %v as a request", s, o, ofRequest, err)
		}
		scheme, hostport, _ := strings.Cut(o.String(), "://")
		if again, err := originOf(&url.URL{Scheme: scheme, Host: hostport}); err != nil || again != o {
			t.Errorf("%q is %q, which is %q, %v", s, o, again, err)
		}
		checkNormal(t, o)
		with := *u
		with.Path, with.RawQuery = "/v1/tasks", "a=b"
		with.User = url.UserPassword("u", "p")
		if same, err := originOf(&with); err != nil || same != o {
			t.Errorf("%q with a path, a query and userinfo is %q, %v", s, same, err)
		}
	})
}

// checkNormal holds the parts of an origin to the normal form.
func checkNormal(t *testing.T, o origin) {
	t.Helper()
	if o.scheme != "http" && o.scheme != "https" {
		t.Errorf("the scheme is %q", o.scheme)
	}
	if port, err := strconv.Atoi(o.port); err != nil || port < 1 || port > 65535 || strconv.Itoa(port) != o.port {
		t.Errorf("the port is %q", o.port)
	}
	if addr, err := netip.ParseAddr(o.host); err == nil {
		if addr.String() != o.host {
			t.Errorf("the address is %q, and not %q", o.host, addr)
		}
		return
	}
	if o.host == "" || len(o.host) > 253 || strings.HasSuffix(o.host, ".") || strings.HasPrefix(o.host, ".") || strings.Contains(o.host, "..") {
		t.Errorf("the host is %q", o.host)
	}
	for _, r := range o.host {
		if r >= utf8.RuneSelf || r >= 'A' && r <= 'Z' || r <= ' ' || strings.ContainsRune("@/?#[]:%\\", r) {
			t.Errorf("the host %q has %q", o.host, r)
		}
	}
}

// FuzzHandmadeURL: a URL that was not parsed is refused, or has a normal origin.
func FuzzHandmadeURL(f *testing.F) {
	f.Add("https", "b.example:0443")
	f.Add("http", "[fe80::1%eth0]:80")
	f.Add("HTTPS", "b.example")
	f.Add("https", "u@b.example\r\n")
	f.Add("https", "b.example..")
	f.Add("http", "[::1%\n]")
	f.Fuzz(func(t *testing.T, scheme, host string) {
		o, err := originOf(&url.URL{Scheme: scheme, Host: host})
		if err != nil {
			if !printable(err.Error()) || len(err.Error()) > 4096 {
				t.Errorf("the error is not bounded and printable: %.200q", err)
			}
			return
		}
		checkNormal(t, o)
	})
}

// FuzzPolicyEvaluated: the header says policy only where every value says true,
// routing only where every value says false, in ASCII, and anything else
// contradicts; two headers and one combined by a comma are the same.
func FuzzPolicyEvaluated(f *testing.F) {
	for _, seed := range []string{"true", "FALSE", "true,false", " true\t,True", "", ",", "falſe", "true\x00", "ｔｒｕｅ", strings.Repeat("true,", 20), "1"} {
		f.Add(seed, seed)
		f.Add("true", seed)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		got := evaluatedLayer([]string{a, b})
		if combined := evaluatedLayer([]string{a + "," + b}); combined != got {
			t.Errorf("%q and %q are %v apart and %v combined", a, b, got, combined)
		}
		if swapped := evaluatedLayer([]string{b, a}); swapped != got {
			t.Errorf("%q and %q are %v, and %v the other way round", a, b, got, swapped)
		}
		words := strings.Split(a+","+b, ",")
		all := func(want string) bool {
			for _, w := range words {
				w = strings.Trim(w, " \t")
				if len(w) != len(want) || !strings.EqualFold(w, want) {
					return false
				}
			}
			return true
		}
		want := LayerUnknown
		switch {
		case len(words) > maxSignalValues:
		case all("true"):
			want = LayerPolicy
		case all("false"):
			want = LayerRouting
		}
		if got != want {
			t.Errorf("%q and %q are %v, want %v", a, b, got, want)
		}
	})
}

// FuzzRetryAfter: a wait is never negative and never wraps; delay-seconds are
// exactly that many, and anything that is no plain number or date forbids.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{
		"0", "120", "-1", "9223372036", "9223372037", "18446744073709551615", "18446744073709551616", "1.5", "1e3", "+5", " 5 ", "٣", "",
		"Fri, 02 Jan 2026 00:00:00 GMT", "Friday, 02-Jan-26 00:00:00 GMT", "Fri Jan  2 00:00:00 2026", "Fri, 31 Dec 9999 23:59:59 GMT", "0x10", "1_000",
	} {
		f.Add(seed)
	}
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		wait, present, ok := retryAfter(http.Header{"Retry-After": {s}}, now)
		if wait < 0 || !ok && wait != 0 || !present {
			t.Errorf("%q is %v, %v", s, wait, ok)
		}
		if twice, _, also := retryAfter(http.Header{"Retry-After": {s, s}}, now); twice != wait || also != ok {
			t.Errorf("%q is %v once and %v twice", s, wait, twice)
		}
		if _, _, differ := retryAfter(http.Header{"Retry-After": {s, s + "0"}}, now); differ {
			t.Errorf("%q and another value are accepted", s)
		}
		trimmed := strings.Trim(s, " \t")
		digits := trimmed != "" && strings.Trim(trimmed, "0123456789") == ""
		_, dateErr := http.ParseTime(trimmed)
		if ok && !digits && dateErr != nil {
			t.Errorf("%q is neither seconds nor a date, and is obeyed as %v", s, wait)
		}
		if !ok || !digits {
			return
		}
		if n, err := strconv.ParseUint(trimmed, 10, 64); err != nil || n > math.MaxInt64/1_000_000_000 || wait != time.Duration(n)*time.Second {
			t.Errorf("%q is %v", s, wait)
		}
	})
}

// FuzzAnchorTime: every time is found again in each of the three spellings that
// it has, and what is accepted is one of the three.
func FuzzAnchorTime(f *testing.F) {
	for _, seed := range []string{
		"2026-01-02T03:04:05Z", "2026-01-02T03:04:05.999999999+14:00", "Fri, 02 Jan 2026 03:04:05 GMT", "1767312000", "0", "-1", "99999999999", "100000000000",
		"0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-02-30T00:00:00Z", "2026-01-02", "now", "", "1e9", "+5", " 5", strings.Repeat("9", 100),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		at, err := parseAnchorTime(s)
		if err != nil {
			if !printable(err.Error()) || len(err.Error()) > 2048 {
				t.Errorf("the error is not bounded and printable: %.200q", err)
			}
			return
		}
		if len(s) > 64 {
			t.Errorf("%d bytes are accepted", len(s))
		}
		spellings := []string{at.UTC().Format(time.RFC3339Nano)}
		if at.Nanosecond() == 0 {
			spellings = append(spellings, at.UTC().Format(http.TimeFormat))
			if unix := at.Unix(); unix >= 0 && unix < 100_000_000_000 {
				spellings = append(spellings, fmt.Sprint(unix))
			}
		}
		if y := at.UTC().Year(); y < 0 || y > 9999 {
			return // such a time has no spelling
		}
		for _, spelling := range spellings {
			if again, err := parseAnchorTime(spelling); err != nil || !again.Equal(at) {
				t.Errorf("%q is %v, spelled %q it is %v, %v", s, at, spelling, again, err)
			}
		}
	})
}

// FuzzCorrelation: the longest configured prefix decides, an id is evidence for
// one layer at most, and without a prefix it is for none.
func FuzzCorrelation(f *testing.F) {
	f.Add("pe-1", "pe-", "rt-")
	f.Add("rt-pe-1", "rt-", "rt-pe-")
	f.Add("", "a", "b")
	f.Add("\xff\xfe", "\xff", "\xff\xfe")
	f.Fuzz(func(t *testing.T, id, policy, routing string) {
		if policy == "" || routing == "" || policy == routing {
			return
		}
		if strings.ContainsAny(id+policy+routing, ", \t") {
			return // ids that an intermediary combined are in signals_test.go
		}
		table := Signals{CorrelationPrefixes: map[string]Layer{policy: LayerPolicy, routing: LayerRouting}}.
			compile(func(field, format string, args ...any) { t.Fatalf("%s: "+format, append([]any{field}, args...)...) })
		want, longest := LayerUnknown, 0
		if strings.HasPrefix(id, policy) {
			want, longest = LayerPolicy, len(policy)
		}
		if strings.HasPrefix(id, routing) && len(routing) > longest {
			want = LayerRouting
		}
		if got := table.prefixLayer(id); got != want {
			t.Errorf("%q with prefixes %q and %q is of %v, want %v", id, policy, routing, got, want)
		}
		for _, name := range []string{headerCorrelationID, headerFederationCorrelationID} {
			r := table.read(http.Header{name: {id}}, 403, time.Time{}, time.Time{})
			if want == LayerUnknown && len(r.evidence) != 0 ||
				want != LayerUnknown && (len(r.evidence) != 1 || r.evidence[0] != Evidence{Source: SourceCorrelationPrefix, Layer: want}) {
				t.Errorf("%q is evidence %v, want that of %v", id, r.evidence, want)
			}
			if r.correlationID != id {
				t.Errorf("%q is read as %q", id, r.correlationID)
			}
		}
	})
}

// FuzzSanitize: the form in which a peer's words leave the package is bounded,
// printable ASCII, and plain text is as it was.
func FuzzSanitize(f *testing.F) {
	for _, seed := range []string{
		"SCOPE_NARROWED", "", "\x1b[31m\r\n", `"quoted" and \ back`, "\u202e\u2066", "\xff\xfe", strings.Repeat("\u00e9", 300), strings.Repeat("a", 257),
		strings.Repeat("\x80", 300), strings.Repeat("a", 255) + "\U0001f600", "\x7f",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		cut, wasCut := bounded(s)
		if wasCut != (cut != s) {
			t.Errorf("%q: cut %v", s, wasCut)
		}
		if !strings.HasPrefix(s, cut) || len(cut) > maxQuoted || len(s) <= maxQuoted && cut != s {
			t.Errorf("%q is cut to %q", s, cut)
		}
		if len(s) > maxQuoted && utf8.ValidString(s) && (len(cut) <= maxQuoted-utf8.UTFMax || !utf8.ValidString(cut)) {
			t.Errorf("%q is cut to %d bytes: %q", s, len(cut), cut)
		}
		clean, marked := sanitize(s), false
		if wasCut {
			if clean, marked = strings.CutSuffix(clean, cutMark); !marked {
				t.Errorf("%q is cut, and nothing says so: %q", s, clean)
			}
		}
		if !printable(clean) || len(clean) > 10*maxQuoted {
			t.Errorf("%q becomes %q", s, clean)
		}
		if printable(s) && clean != cut {
			t.Errorf("plain text %q becomes %q", s, clean)
		}
		quoted := quote(s)
		if !printable(quoted) {
			t.Errorf("%q is quoted as %q", s, quoted)
		}
		unmarked := quoted
		if wasCut {
			unmarked = strings.TrimSuffix(quoted, cutMark)
		}
		if back, err := strconv.Unquote(unmarked); err != nil || back != cut {
			t.Errorf("%s is read back as %q, %v; want %q", quoted, back, err, cut)
		}
	})
}
