package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/fedhttp/fedhttp/fedtest"
)

// TestAnchorsTold: why a peer has no anchor is said, once.
func TestAnchorsTold(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	peer.Otherwise(fedtest.RouteDrop(503))
	peers := peersOf(t, peer)
	pki := httptest.NewServer(http.NotFoundHandler())
	defer pki.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for entry, want := range map[string]string{
		"{peer: org-c, version: v1}":                               "anchors.yaml has no anchor of this peer",
		fmt.Sprintf("{peer: org-b, url: %s/a?SECRET}", pki.URL):    "status 404 instead of an anchor",
		fmt.Sprintf("{peer: org-b, url: %s/a?SECRET}", gone.URL):   gone.URL + "/a: dial tcp ",
		fmt.Sprintf("{peer: org-b, bundle: %s/a?SECRET}", pki.URL): "404",
	} {
		file := write(t, "anchors.yaml", "anchors: ["+entry+"]")
		r := runWith(t, "", "get", "-peers", peers, "-anchors", file, peer.URL)
		r.want(t, 11, `level=WARN msg="anchor not fetched" peer=org-b error=`, want)
		if strings.Contains(r.err, "SECRET") || strings.Count(r.err, "anchor not fetched") != 1 {
			t.Errorf("%s", r.err)
		}
	}
	p := startProxy(t, "-peers", peers, "-anchors", write(t, "anchors.yaml", "anchors: []"))
	p.do(t, "GET", "/org-b/", nil)
	eventually(t, func() bool { return strings.Contains(p.logs.String(), "has no anchor of this peer") })
}

// TestAnchorsParsedOnce: the file is parsed again when it has changed, and not for each peer's
// fetch.
func TestAnchorsParsedOnce(t *testing.T) {
	t.Parallel()
	path := write(t, "anchors.yaml", "anchors: [{peer: org-b, version: v1}]")
	a, err := newAnchorFile(path, http.DefaultTransport, nil)
	if err != nil {
		t.Fatal(err)
	}
	entries := func() (any, string) {
		entries, err := a.entries()
		if err != nil {
			t.Fatal(err)
		}
		return reflect.ValueOf(entries).Pointer(), entries["org-b"].Version
	}
	first, _ := entries()
	if second, _ := entries(); second != first {
		t.Error("the same content is parsed again")
	}
	if err := os.WriteFile(path, []byte("anchors: [{peer: org-b, version: v2}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, version := entries(); version != "v2" {
		t.Errorf("version %s", version)
	}
}
