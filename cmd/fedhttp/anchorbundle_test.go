package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func newCA(t *testing.T) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "another CA"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// bundleServer publishes a bundle, and counts who has it already.
func bundleServer(t *testing.T, contentType, body string) (at string, known *atomic.Int64) {
	t.Helper()
	known = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") == `"1"` {
			known.Add(1)
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL, known
}

// TestBundle: an entry can name a JWK Set or the CAs in PEM, as HTTPAnchorSource fetches
// them. The CAs decide who is taken for the peer, alone.
func TestBundle(t *testing.T) {
	t.Parallel()
	var delivered atomic.Int64
	peer := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { delivered.Add(1) }))
	defer peer.Close()
	encoded := func(c *x509.Certificate) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
	}
	theirs, _ := bundleServer(t, "application/x-pem-file", encoded(peer.Certificate()))
	another := newCA(t)
	others, _ := bundleServer(t, "application/x-pem-file", encoded(another))
	peers := write(t, "peers.yaml", "peers: [{id: org-b, origins: ["+peer.URL+"], retry: {max_attempts: 1}, require_anchor: true}]")
	both := write(t, "ca.pem", encoded(peer.Certificate())+encoded(another))

	r := runWith(t, "", "get", "-p", peers, "-anchors", write(t, "a.yaml", "anchors: [{peer: org-b, bundle: "+theirs+"}]"), peer.URL)
	r.want(t, 0)
	r = runWith(t, "", "get", "-p", peers, "-cacert", both, "-anchors", write(t, "a.yaml", "anchors: [{peer: org-b, bundle: "+others+"}]"), peer.URL)
	r.want(t, 11, "unknown authority")
	private := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-pem-file")
		_, _ = io.WriteString(w, encoded(peer.Certificate()))
	}))
	defer private.Close()
	file := write(t, "a.yaml", "anchors: [{peer: org-b, bundle: "+private.URL+"}]")
	runWith(t, "", "get", "-p", peers, "-cacert", both, "-anchors", file, peer.URL).want(t, 0)
	runWith(t, "", "get", "-p", peers, "-anchors", file, peer.URL).want(t, 15, "anchor_required") // nobody knows its server
	if n := delivered.Load(); n != 2 {
		t.Errorf("%d delivered", n)
	}
}

// TestBundleSource: what a source remembers, it remembers as long as its URL stands in
// the file.
func TestBundleSource(t *testing.T) {
	t.Parallel()
	keys, known := bundleServer(t, "application/json", `{"spiffe_sequence": 4, "keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AA"}]}`)
	older, _ := bundleServer(t, "application/json", `{"spiffe_sequence": 3, "keys": [{"kty": "OKP", "crv": "Ed25519", "x": "BB"}]}`)
	path := write(t, "anchors.yaml", "")
	put := func(url string) {
		if err := os.WriteFile(path, fmt.Appendf(nil, "anchors: [{peer: org-b, bundle: %s}]", url), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(keys)
	a, err := newAnchorFile(path, &http.Transport{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var versions []string
	for range 2 {
		anchor, err := a.FetchAnchor(t.Context(), "org-b")
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, anchor.Version)
	}
	if n := known.Load(); versions[0] != versions[1] || n != 1 {
		t.Errorf("%q, known %d times", versions, n)
	}
	put(older) // another publisher, whose numbers are its own
	if anchor, err := a.FetchAnchor(t.Context(), "org-b"); err != nil || anchor.Version == versions[0] {
		t.Errorf("%+v, %v", anchor, err)
	}
	put(keys + "\nanchors: []") // and a file that cannot be read is no anchor
	if anchor, err := a.FetchAnchor(t.Context(), "org-b"); err == nil {
		t.Errorf("%+v", anchor)
	}
}

// TestWrongKindOfAnchor: an error says how such a document is meant to be named.
func TestWrongKindOfAnchor(t *testing.T) {
	t.Parallel()
	keys, _ := bundleServer(t, "application/json", `{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AA"}]}`)
	certs, _ := bundleServer(t, "application/x-pem-file", "-----BEGIN CERTIFICATE-----\n")
	for _, at := range []string{keys, certs} {
		a, err := newAnchorFile(write(t, "a.yaml", "anchors: [{peer: org-b, url: "+at+"}]"), &http.Transport{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if anchor, err := a.FetchAnchor(t.Context(), "org-b"); err == nil || !strings.Contains(err.Error(), "as bundle") {
			t.Errorf("%+v, %v", anchor, err)
		}
	}
	for faulty, want := range map[string]string{
		"peer: b, bundle: http://b.example":                          "anchors[0]: bundle: http://b.example is plain http",
		"peer: b, bundle: https://u:SECRET@b.example":                "anchors[0]: bundle: has userinfo",
		"peer: b, bundle: https://b.example, url: https://b.example": "anchors[0]: want one of url, bundle and version",
		"peer: b, bundle: https://b.example, version: v1":            "anchors[0]: want one of url, bundle and version",
		"peer: b, bundle: https://b.example, expires_at: 2027-01-01": "anchors[0]: issued_at and expires_at",
		"peer: b, url: https://b.example, issued_at: 2026-01-01":     "anchors[0]: issued_at and expires_at",
	} {
		if _, err := newAnchorFile(write(t, "a.yaml", "anchors: [{"+faulty+"}]"), &http.Transport{}, nil); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", faulty, err)
		}
	}
}
