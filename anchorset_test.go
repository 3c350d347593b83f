package fedhttp

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// What a JWK Set and a PEM bundle are taken for.

// TestPEMBundle: every CA certificate is a root, comments and order mean nothing.
func TestPEMBundle(t *testing.T) {
	t.Parallel()
	a, b := newTestCA(t, "a", expiring(time.Date(2050, 1, 1, 0, 0, 0, 0, time.UTC))), newTestCA(t, "b")
	first, err := parsePEM(pemOf(a, b))
	if err != nil {
		t.Fatal(err)
	}
	if !first.roots.Equal(poolOf(a, b)) {
		t.Error("the roots are not those of the bundle")
	}
	vtWant(t, "expires", first.expires, b.cert.NotAfter)
	for name, same := range map[string][]byte{
		"the other way round": pemOf(b, a),
		"one twice":           pemOf(a, b, a),
		"with comments":       bytes.Join([][]byte{[]byte("# CAs of B\n# a\n"), pemOf(a), []byte("\n# b\n"), pemOf(b), []byte("\n \t\r\n")}, nil),
		"with CRLF":           bytes.ReplaceAll(pemOf(a, b), []byte("\n"), []byte("\r\n")),
	} {
		set, err := parsePEM(same)
		if err != nil || set.version != first.version || !set.roots.Equal(first.roots) || !set.expires.Equal(first.expires) {
			t.Errorf("%s: %+v, %v; want version %s", name, set, err, first.version)
		}
	}
	for name, other := range map[string][]byte{"one of two": pemOf(a), "the other": pemOf(b), "more": pemOf(a, b, newTestCA(t, "c"))} {
		if set, err := parsePEM(other); err != nil || set.version == first.version {
			t.Errorf("%s: %q, %v; want another version than %q", name, set.version, err, first.version)
		}
	}
}

// noCA makes a certificate that may not issue others.
func noCA(c *x509.Certificate) { c.IsCA = false }

// TestPEMBundleRefused: a bundle is whole, or it is none.
func TestPEMBundleRefused(t *testing.T) {
	t.Parallel()
	ca, other := newTestCA(t, "ca"), newTestCA(t, "other")
	good, secret := pemOf(ca), []byte("SECRETSECRETSECRET")
	tooMany := bytes.Repeat(good, maxAnchorMembers+1)
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":                      {nil, "no certificate"},
		"only white space":           {[]byte(" \n"), "no certificate"},
		"only text":                  {[]byte("BEGIN CERTIFICATE"), "no certificate"},
		"a private key":              {append(pemOf(ca), pemBlock("PRIVATE KEY", secret)...), `"PRIVATE KEY"`},
		"an EC private key":          {append(pemBlock("EC PRIVATE KEY", secret), good...), `"EC PRIVATE KEY"`},
		"a CRL":                      {pemBlock("X509 CRL", secret), `"X509 CRL"`},
		"a type with a line":         {pemBlock(strings.Repeat("A", 300)+"\x1b", secret), cutMark},
		"no DER":                     {pemBlock("CERTIFICATE", secret), "certificate 1: x509"},
		"the second no DER":          {append(pemOf(ca), pemBlock("CERTIFICATE", secret)...), "certificate 2: x509"},
		"DER and more":               {pemBlock("CERTIFICATE", append(bytes.Clone(ca.cert.Raw), 0)), "certificate 1: x509: trailing data"},
		"a header":                   {[]byte(strings.Replace(string(good), "CERTIFICATE-----\n", "CERTIFICATE-----\nA: b\n\n", 1)), "headers"},
		"text after it":              {append(pemOf(ca), "x"...), "follows certificate 1"},
		"html after it":              {append(pemOf(ca), "<html>"...), "follows certificate 1"},
		"a block cut short":          {good[:len(good)-40], "no certificate"},
		"the last cut short":         {pemOf(ca, other)[:len(pemOf(ca, other))-40], "follows certificate 1"},
		"the first cut short":        {append(good[:len(good)-40:len(good)-40], append([]byte("\n"), pemOf(other)...)...), "cannot be read after 0"},
		"the first without a begin":  {append(good[5:len(good):len(good)], pemOf(other)...), "cannot be read after 0"},
		"a server's own certificate": {append(pemOf(ca), pemBlock("CERTIFICATE", ca.issue(t).Certificate[0])...), `certificate 2: is of no CA, but of "CN=leaf of ca"`},
		"a leaf, self-signed":        {pemOf(newTestCA(t, "leaf", noCA)), "is of no CA"},
		"a CA that may not sign":     {pemOf(newTestCA(t, "crl", func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign })), "is of no CA"},
		"without constraints":        {pemOf(newTestCA(t, "v", func(c *x509.Certificate) { c.BasicConstraintsValid = false })), "is of no CA"},
		"too many":                   {tooMany, "more than 1000"},
	} {
		wantRefused(t, name, c.want, func() (anchorSet, error) { return parsePEM(c.data) }, "SECRET", base64.StdEncoding.EncodeToString(secret))
	}
	if _, err := parsePEM(tooMany[len(good):]); err != nil {
		t.Errorf("%d: %v", maxAnchorMembers, err)
	}
}

// wantRefused checks for an error that says want and none of the secrets.
func wantRefused(t *testing.T, name, want string, parse func() (anchorSet, error), secrets ...string) {
	t.Helper()
	set, err := parse()
	if err == nil {
		t.Errorf("%s: accepted as %+v, want an error with %q", name, set, want)
		return
	}
	if !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want an error with %q", name, err, want)
	}
	for _, secret := range secrets {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v shows %q", name, err, secret)
		}
	}
}

// TestJWKSet: what makes a version, and which certificates are roots.
func TestJWKSet(t *testing.T) {
	t.Parallel()
	a, b := newTestCA(t, "a", expiring(time.Date(2050, 1, 1, 0, 0, 0, 0, time.UTC))), newTestCA(t, "b")
	bundle := []jwk{x509Key(a), signingKey("1"), x509Key(b)}
	first, err := parseJWKS(jwks(t, bundle, "spiffe_sequence", 7, "spiffe_refresh_hint", 300, "unknown", map[string]any{"x": 1}))
	if err != nil {
		t.Fatal(err)
	}
	if !first.roots.Equal(poolOf(a, b)) {
		t.Error("the roots are not those of the bundle")
	}
	vtWant(t, "expires", first.expires, b.cert.NotAfter)
	vtWant(t, "sequence", *first.sequence, 7)
	vtWant(t, "hint", first.hint, 5*time.Minute)

	var indented bytes.Buffer
	if err := json.Indent(&indented, jwks(t, bundle), " ", "\t"); err != nil {
		t.Fatal(err)
	}
	for name, same := range map[string][]byte{
		"another order, one twice": jwks(t, []jwk{x509Key(b), signingKey("1"), x509Key(a), x509Key(b)}),
		"white space":              indented.Bytes(),
		"escapes":                  bytes.ReplaceAll(jwks(t, bundle), []byte(`"kty"`), []byte(`"\u006bty"`)),
		"another sequence":         jwks(t, bundle, "spiffe_sequence", 8),
	} {
		if set, err := parseJWKS(same); err != nil || set.version != first.version {
			t.Errorf("%s: %q, %v; want version %q", name, set.version, err, first.version)
		}
	}
	with := func(k jwk, name string, value any) jwk { k[name] = value; return k }
	seen := map[string]string{first.version: "the first"}
	for name, other := range map[string][]jwk{
		"one less":          {x509Key(a), signingKey("1")},
		"another key":       {x509Key(a), signingKey("2"), x509Key(b)},
		"an unknown member": {x509Key(a), with(signingKey("1"), "alg", "EdDSA"), x509Key(b)},
		"a large number":    {x509Key(a), with(signingKey("1"), "n", json.Number("9007199254740993")), x509Key(b)},
		"the next to it":    {x509Key(a), with(signingKey("1"), "n", json.Number("9007199254740992")), x509Key(b)},
	} {
		set, err := parseJWKS(jwks(t, other))
		if err != nil || seen[set.version] != "" {
			t.Errorf("%s: %q, %v; that is the version of %s", name, set.version, err, seen[set.version])
		}
		seen[set.version] = name
	}
}

// TestJWKSetWithoutRoots: a chain that belongs to a key is no root, whoever issued
// it: the peer's server may have a certificate of anybody else.
func TestJWKSetWithoutRoots(t *testing.T) {
	t.Parallel()
	ca := newTestCA(t, "ca")
	for _, use := range []any{nil, "sig", "enc", "jwt-svid", "X509-SVID", "x509-svid ", 1} {
		key := x509Key(ca)
		key["use"] = use
		set, err := parseJWKS(jwks(t, []jwk{key}))
		if err != nil || set.roots != nil || !set.expires.IsZero() || set.version == "" {
			t.Errorf("use %v: %+v, %v", use, set, err)
		}
		key["x5c"] = []string{"no base64", ""}
		if _, err := parseJWKS(jwks(t, []jwk{key})); err != nil {
			t.Errorf("use %v, an x5c that is of no interest: %v", use, err)
		}
	}
	// RFC 7517, section 5, and 4.5.
	if _, err := parseJWKS(jwks(t, []jwk{{"kty": "unheard-of"}, signingKey("1"), signingKey("1")})); err != nil {
		t.Error(err)
	}
}

func TestJWKSetRefused(t *testing.T) {
	t.Parallel()
	ca := newTestCA(t, "ca")
	with := func(k jwk, name string, value any) []byte { k[name] = value; return jwks(t, []jwk{k}) }
	encoded := base64.StdEncoding.EncodeToString
	many := make([]jwk, maxAnchorMembers+1)
	for i := range many {
		many[i] = signingKey(fmt.Sprint(i))
	}
	one := []jwk{signingKey("1")}
	cases := map[string]struct {
		data []byte
		want string
	}{
		"nothing":            {nil, "no JSON object"},
		"html":               {[]byte("<html>"), "no JSON object"},
		"an array":           {[]byte("[]"), "no JSON object"},
		"null":               {[]byte("null"), "no keys"},
		"an error object":    {[]byte(`{"error":"not found"}`), "no keys"},
		"cut short":          {[]byte(`{"keys":[{"kty":"OKP"}]`), "no JSON object"},
		"more after it":      {append(jwks(t, one), '}'), "no JSON object"},
		"Keys":               {[]byte(`{"Keys":[{"kty":"OKP"}]}`), "no keys"},
		"empty":              {[]byte(`{"keys":[]}`), "empty"},
		"null keys":          {[]byte(`{"keys":null}`), "empty"},
		"keys of a set":      {[]byte(`{"keys":{"kty":"OKP"}}`), "no array"},
		"too many":           {jwks(t, many), "1001 keys"},
		"a null key":         {[]byte(`{"keys":[{"kty":"OKP"},null]}`), "keys[1]: has no kty"},
		"a text":             {[]byte(`{"keys":["kty"]}`), "keys[0]: is no object"},
		"no kty":             {[]byte(`{"keys":[{"kid":"1"}]}`), "has no kty"},
		"KTY":                {[]byte(`{"keys":[{"KTY":"OKP"}]}`), "has no kty"},
		"a kty of 1":         {[]byte(`{"keys":[{"kty":1}]}`), "has no kty"},
		"no x5c":             {with(x509Key(ca), "x5c", nil), "it has 0"},
		"an empty x5c":       {with(x509Key(ca), "x5c", []string{}), "it has 0"},
		"a chain":            {with(x509Key(ca), "x5c", []string{encoded(ca.cert.Raw), encoded(ca.cert.Raw)}), "it has 2"},
		"x5c is a text":      {with(x509Key(ca), "x5c", encoded(ca.cert.Raw)), "it has 0"},
		"x5c of numbers":     {with(x509Key(ca), "x5c", []int{1}), "x5c: x509"},
		"base64url":          {with(x509Key(ca), "x5c", []string{"__--"}), "no base64"},
		"no DER":             {with(x509Key(ca), "x5c", []string{encoded([]byte("SECRET"))}), "x5c: x509"},
		"no CA":              {with(x509Key(newTestCA(t, "leaf", noCA)), "alg", "EdDSA"), `is of no CA, but of "CN=leaf"`},
		"a sequence of text": {jwks(t, one, "spiffe_sequence", "7"), "spiffe_sequence"},
		"a negative one":     {jwks(t, one, "spiffe_sequence", -1), "spiffe_sequence"},
		"a fraction":         {jwks(t, one, "spiffe_sequence", 1.5), "spiffe_sequence"},
		"2^64":               {jwks(t, one, "spiffe_sequence", json.Number("18446744073709551616")), "spiffe_sequence"},
	}
	for _, name := range []string{"d", "k", "priv"} {
		cases["private: "+name] = struct {
			data []byte
			want string
		}{with(signingKey("1"), name, "SECRET"), fmt.Sprintf("keys[0]: is private: it has the member %q", name)}
	}
	for _, name := range []string{"p", "q", "dp", "dq", "qi", "oth"} {
		cases["private: RSA's "+name] = struct {
			data []byte
			want string
		}{with(jwk{"kty": "RSA", "n": "AQAB", "e": "AQAB"}, name, "SECRET"), fmt.Sprintf("keys[0]: is private: it has the member %q", name)}
		if _, err := parseJWKS(with(signingKey("1"), name, "x")); err != nil {
			t.Errorf("%s of another type of key: %v", name, err)
		}
	}
	for name, c := range cases {
		wantRefused(t, name, c.want, func() (anchorSet, error) { return parseJWKS(c.data) }, "SECRET", encoded([]byte("SECRET")))
	}
	if _, err := parseJWKS(jwks(t, many[1:])); err != nil {
		t.Errorf("%d: %v", maxAnchorMembers, err)
	}
}

func TestSPIFFERefreshHint(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[int64]time.Duration{
		-1: 0, 0: 0, 1: time.Second, 5: 5 * time.Second, 86400: 24 * time.Hour, 86401: 24 * time.Hour, 1<<63 - 1: 24 * time.Hour,
	} {
		set, err := parseJWKS(jwks(t, []jwk{signingKey("1")}, "spiffe_refresh_hint", seconds))
		if err != nil || set.hint != want {
			t.Errorf("%d: %v, %v; want %v", seconds, set.hint, err, want)
		}
	}
	for _, text := range []string{"300.0", "3e2", "0.5", "9223372036854775808", "12345678901234567890", `"300"`, "[300]", "true"} {
		set, err := parseJWKS(jwks(t, []jwk{signingKey("1")}, "spiffe_refresh_hint", json.RawMessage(text)))
		if err != nil || set.hint != 0 || set.version == "" {
			t.Errorf("%s: %+v, %v; want it ignored", text, set, err)
		}
	}
	if set, err := parseJWKS(jwks(t, []jwk{signingKey("1")}, "spiffe_refresh_hint", nil, "spiffe_sequence", nil)); err != nil || set.hint != 0 || set.sequence != nil {
		t.Errorf("null: %+v, %v", set, err)
	}
}
