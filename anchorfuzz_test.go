package fedhttp

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzAnchorBody: a set that is accepted is the same set in another order and with
// other white space, and has no private key; an error is bounded and printable.
func FuzzAnchorBody(f *testing.F) {
	a, b := newTestCA(f, "a"), newTestCA(f, "b")
	private := signingKey("1")
	private["d"] = "AAAA"
	for _, set := range [][]byte{
		jwks(f, []jwk{x509Key(a), signingKey("1"), x509Key(b)}, "spiffe_sequence", 7, "spiffe_refresh_hint", 300),
		jwks(f, []jwk{private}), jwks(f, nil), []byte(`{"keys":[{"kty":"a","kty":"b","x":{"y":1E400,"y":-0}}],"keys":[{"kty":"\ud800"}]}`),
		[]byte(`{"keys":[{"kty":"OKP","use":"x509-svid","x5c":["AA=="]}],"spiffe_sequence":null}`),
	} {
		f.Add(false, set)
	}
	for _, set := range [][]byte{
		pemOf(a, b), append([]byte("# a comment\n"), pemOf(a)...), pemBlock("PRIVATE KEY", []byte{1}), pemOf(a)[:100],
		append(pemOf(b), "-----END CERTIFICATE-----\n"...), []byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"),
	} {
		f.Add(true, set)
	}
	f.Fuzz(func(t *testing.T, isPEM bool, data []byte) {
		parse, another := parseJWKS, anotherJWKS
		if isPEM {
			parse, another = parsePEM, anotherPEM
		}
		set, err := parse(data)
		if err != nil {
			err = &anchorError{"b", &url.URL{Scheme: "https", Host: "b.example"}, err}
			if !printable(err.Error()) || len(err.Error()) > 12*maxQuoted {
				t.Errorf("the error is not bounded and printable: %.4000q", err)
			}
			return
		}
		if len(set.version) != len("sha256:")+32 || !isHeaderValue(set.version) {
			t.Errorf("version %q", set.version)
		}
		if (set.roots == nil) != set.expires.IsZero() || isPEM && set.roots == nil {
			t.Errorf("roots %v, which expire at %v", set.roots, set.expires)
		}
		if set.hint < 0 || set.hint > 24*time.Hour {
			t.Errorf("hint %v", set.hint)
		}
		same, err := parse(another(t, data))
		if err != nil || same.version != set.version || !same.roots.Equal(set.roots) || !same.expires.Equal(set.expires) ||
			same.hint != set.hint || (same.sequence == nil) != (set.sequence == nil) || same.sequence != nil && *same.sequence != *set.sequence {
			t.Errorf("%+v, in another order %+v, %v", set, same, err)
		}
	})
}

// anotherJWKS is the set the other way round, indented.
func anotherJWKS(t *testing.T, data []byte) []byte {
	var doc map[string]any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	keys := doc["keys"].([]any)
	for _, key := range keys {
		for _, name := range []string{"d", "k", "priv"} {
			if _, ok := key.(map[string]any)[name]; ok {
				t.Errorf("a key with %s is accepted", name)
			}
		}
	}
	slices.Reverse(keys)
	doc["keys"] = append(keys, keys[0])
	if len(keys) == maxAnchorMembers {
		doc["keys"] = keys
	}
	again, err := json.MarshalIndent(doc, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// anotherPEM is the bundle the other way round. It finds blocks in a way of its own.
func anotherPEM(t *testing.T, data []byte) []byte {
	var blocks [][]byte
	for _, part := range strings.SplitAfter(string(data), "-----END CERTIFICATE-----") {
		if block, _ := pem.Decode([]byte(part)); block != nil {
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil || !cert.IsCA || block.Type != "CERTIFICATE" {
				t.Errorf("%s is accepted, %v", block.Type, err)
			}
			blocks = append(blocks, pem.EncodeToMemory(block))
		}
	}
	if found := strings.Count(string(data), "-----BEGIN"); found != len(blocks) {
		t.Errorf("%d blocks, of which %d can be read", found, len(blocks))
	}
	slices.Reverse(blocks)
	return bytes.Join(blocks, []byte("\n"))
}

// FuzzAnchorHeader: what of a header is kept is bounded, and can be sent back.
func FuzzAnchorHeader(f *testing.F) {
	for _, seed := range []string{
		`"1"`, `W/"1"`, `w/"1"`, `""`, `"`, `W/`, `"a"b"`, "\"\x7f\"", `"` + strings.Repeat("x", 300) + `"`, "1", `"a b"`,
		"max-age=60", `public, MAX-AGE="3600", immutable`, "max-age=0", "max-age=-1", "max-age=1", "s-maxage=5", "max-age", "max-age=99999999999999999999", "no-cache", "max-age=1e3",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tag := entityTag(http.Header{"Etag": {s}})
		if tag != "" && (tag != s || len(tag) > maxETag || !isPlain(tag) || strings.Count(tag, `"`) != 2 || !strings.HasSuffix(tag, `"`)) {
			t.Errorf("%q is kept as %q", s, tag)
		}
		age := maxAge(http.Header{"Cache-Control": {s}})
		if age != 0 && (age < 10*time.Second || age > 24*time.Hour) {
			t.Errorf("%q is %v", s, age)
		}
		if age != 0 && !strings.Contains(strings.ToLower(s), "max-age=") {
			t.Errorf("%q is %v", s, age)
		}
	})
}

func TestAnchorHeader(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{
		"max-age=60": time.Minute, `public, MAX-AGE="3600", immutable`: time.Hour, "max-age=1": 10 * time.Second, "max-age=86401": 24 * time.Hour,
		"max-age=99999999999999999999": 24 * time.Hour, "max-age=0": 0, "max-age=-1": 0, "max-age=+60": 0, "max-age=1e3": 0, "max-age": 0, "s-maxage=60": 0,
		"no-store": 0, "": 0, "max-age=x, max-age=60": time.Minute, "x-max-age=60": 0,
	} {
		vtWant(t, value, maxAge(http.Header{"Cache-Control": {value}}), want)
	}
	vtWant(t, "two fields", maxAge(http.Header{"Cache-Control": {"public", "max-age=60"}}), time.Minute)
	long := `"` + strings.Repeat("x", maxETag-2) + `"`
	for tag, want := range map[string]string{
		`"1"`: `"1"`, `W/"1"`: `W/"1"`, `""`: `""`, `"!#~"`: `"!#~"`, long: long, long[1:]: "", `"` + long[1:] + `x"`: "", `W/` + long: "",
		`w/"1"`: "", `"`: "", `W/`: "", `1`: "", `"1`: "", `1"`: "", `"a"b"`: "", `"a b"`: "", "\"\x7f\"": "", "\"\x80\"": "", "": "", `"1", "2"`: "",
	} {
		vtWant(t, "ETag "+tag, entityTag(http.Header{"Etag": {tag}}), want)
	}
}

// TestAnchorHint: CA certificates are fetched again while they are good.
func TestAnchorHint(t *testing.T) {
	t.Parallel()
	now := time.Now()
	rooted := func(hint, life time.Duration) *anchorSet {
		return &anchorSet{roots: x509.NewCertPool(), hint: hint, expires: now.Add(life)}
	}
	cached := http.Header{"Cache-Control": {"max-age=60"}}
	for _, c := range []struct {
		name   string
		set    *anchorSet
		header http.Header
		want   time.Duration
	}{
		{"nothing is said", &anchorSet{}, nil, time.Hour},
		{"caches are told", &anchorSet{}, cached, time.Minute},
		{"SPIFFE's own is first", &anchorSet{hint: time.Second}, cached, time.Second},
		{"certificates for years", rooted(0, 10*365*24*time.Hour), nil, time.Hour},
		{"certificates for minutes", rooted(0, 10*time.Minute), nil, 5 * time.Minute},
		{"a hint beyond them", rooted(24*time.Hour, 10*time.Hour), nil, 5 * time.Hour},
		{"a hint before", rooted(time.Hour, 10*time.Hour), nil, time.Hour},
		{"nearly over", rooted(time.Hour, time.Second), nil, time.Second},
	} {
		vtWant(t, c.name, hintOf(c.set, c.header, now), c.want)
	}
}
