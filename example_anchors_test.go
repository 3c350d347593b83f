package fedhttp_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/fedhttp/fedhttp"
)

// Org-b publishes the CAs of its servers as PEM. What is fetched is an anchor with
// Roots, and is renewed in time, as org-b tells caches.
func ExampleHTTPAnchorSource() {
	publisher := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/pem-certificate-chain")
		w.Header().Set("Cache-Control", "max-age=600")
		_ = pem.Encode(w, &pem.Block{Type: "CERTIFICATE", Bytes: fenceCA().cert.Raw})
	}))
	defer publisher.Close()
	anchors, err := fedhttp.NewHTTPAnchorSource(fedhttp.HTTPAnchors{
		URLs: map[string]string{"org-b": publisher.URL + "/cas.pem"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// It is for Config.Anchors, which asks it like this.
	anchor, err := anchors.FetchAnchor(context.Background(), "org-b")
	fmt.Println(anchor.Roots != nil, anchor.RefreshHint, err)
	_, err = anchors.FetchAnchor(context.Background(), "org-c")
	fmt.Println(err)
	// Output:
	// true 10m0s <nil>
	// no anchor URL of peer "org-c"
}
