package fedhttp_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/fedhttp/fedhttp"
)

func inPEM(cas ...*authority) []byte {
	var b bytes.Buffer
	for _, ca := range cas {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
	}
	return b.Bytes()
}

// inBundle is a SPIFFE bundle of the CAs.
func inBundle(cas ...*authority) []byte {
	type key struct {
		Kty string   `json:"kty"`
		Use string   `json:"use"`
		X5c [][]byte `json:"x5c"`
	}
	var bundle struct {
		Keys []key `json:"keys"`
	}
	for _, ca := range cas {
		bundle.Keys = append(bundle.Keys, key{"EC", "x509-svid", [][]byte{ca.cert.Raw}})
	}
	text, _ := json.Marshal(bundle) // a []byte is base64 there, as in an x5c
	return text
}

// TestHTTPAnchorsRotate: a peer whose authority was replaced is reached with what
// it publishes, and each task is delivered once.
func TestHTTPAnchorsRotate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, media string
		encode      func(...*authority) []byte
	}{
		{"PEM", "application/pem-certificate-chain", inPEM}, {"SPIFFE", "application/json", inBundle},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			before, after := newAuthority(), newAuthority()
			peer := newRotatingPeer(t, before, false, nil, nil)
			var published atomic.Pointer[[]byte]
			var fetches, confirmed atomic.Int64
			publish := func(cas ...*authority) { set := c.encode(cas...); published.Store(&set) }
			publish(before)
			publisher := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fetches.Add(1)
				set := *published.Load()
				tag := fmt.Sprintf(`"%x"`, sha256.Sum256(set))
				if r.Header.Get("If-None-Match") == tag {
					confirmed.Add(1)
					w.WriteHeader(http.StatusNotModified)
					return
				}
				w.Header().Set("Content-Type", c.media)
				w.Header().Set("ETag", tag)
				_, _ = w.Write(set)
			}))
			defer publisher.Close()
			anchors, err := fedhttp.NewHTTPAnchorSource(fedhttp.HTTPAnchors{URLs: map[string]string{"b": publisher.URL}})
			if err != nil {
				t.Fatal(err)
			}
			tr := newTestTransport(t, fedhttp.Config{Peers: []fedhttp.Peer{testPeer("b", peer.URL)}, Anchors: anchors})

			mustDeliver(t, tr, peer.URL+"/1", 1)
			peer.rotate(after)
			if d, err := rootsGet(tr, peer.URL+"/2"); err == nil || d.Delivery != fedhttp.DeliveryNotDelivered {
				t.Errorf("before it has published: %v (%v), %v", d.Outcome, d.Reason, err)
			}
			if confirmed.Load() == 0 {
				t.Error("no fetch in between was confirmed")
			}
			publish(before, after)
			mustDeliver(t, tr, peer.URL+"/3", 2)
			begun := fetches.Load()
			mustDeliver(t, tr, peer.URL+"/4", 1)
			publish(after)
			mustDeliver(t, tr, peer.URL+"/5", 1)
			if n := fetches.Load(); n != begun {
				t.Errorf("%d fetches that nothing asked for", n-begun)
			}
			for path, want := range map[string]int{"/1": 1, "/2": 0, "/3": 1, "/4": 1, "/5": 1} {
				if n := peer.sent(path); n != want {
					t.Errorf("%s was delivered %d times, want %d", path, n, want)
				}
			}
		})
	}
}
