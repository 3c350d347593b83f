package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// countedSource counts the fetches that are tried.
type countedSource struct {
	fedhttp.AnchorSource
	tried atomic.Int64
}

func (s *countedSource) FetchAnchor(ctx context.Context, peer string) (fedhttp.Anchor, error) {
	s.tried.Add(1)
	return s.AnchorSource.FetchAnchor(ctx, peer)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestMaintainFollowsFile: anchors are renewed ahead of time while the file has any that
// can be, whatever it had at first.
func TestMaintainFollowsFile(t *testing.T) {
	t.Parallel()
	const (
		stands  = "anchors: [{peer: org-b, version: v1}]"
		fetched = "anchors: [{peer: org-b, url: https://pki.b.example/anchor}]"
	)
	path := write(t, "anchors.yaml", stands)
	synctest.Test(t, func(t *testing.T) {
		file, err := newAnchorFile(path, roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(`{"version": "v2"}`)), Request: r}, nil
		}), nil)
		if err != nil {
			t.Fatal(err)
		}
		source := &countedSource{AnchorSource: file}
		transport, err := fedhttp.NewTransport(fedhttp.Config{
			Peers: []fedhttp.Peer{{ID: "org-b", Origins: []string{"https://b.example"}}}, Anchors: source,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer transport.Close()
		defer maintained(t, file, transport)()
		// Anchors without an end are fetched every hour.
		tried := func(within time.Duration) int64 {
			before := source.tried.Load()
			time.Sleep(within)
			synctest.Wait()
			return source.tried.Load() - before
		}
		put := func(text string) { // each as old and as long as the others
			replace(t, path, text+strings.Repeat(" ", 100-len(text)))
		}
		if n := tried(4 * time.Hour); n != 0 {
			t.Errorf("%d fetches of an anchor that stands in the file", n)
		}
		put(fetched)
		if n := tried(5 * time.Second); n != 1 {
			t.Errorf("%d fetches of the first URL", n)
		}
		if n := tried(4 * time.Hour); n < 3 {
			t.Errorf("%d fetches in four hours", n)
		}
		put(fetched + ", and a fault")
		if n := tried(4 * time.Hour); n < 3 {
			t.Errorf("%d fetches in four hours, with a fault in the file", n)
		}
		// Right after a try, so that none meets the change before it is seen.
		for tried(time.Second) == 0 {
		}
		put(stands)
		tried(5 * time.Second)
		if n := tried(4 * time.Hour); n != 0 {
			t.Errorf("%d fetches once no URL is left", n)
		}
		put(fetched)
		if n := tried(4 * time.Hour); n < 3 {
			t.Errorf("%d fetches of a URL that is there again", n)
		}
	})
}

// TestMaintainMoves: an anchor that is to come from a URL is fetched from there once the file
// says so, whatever stood in it before, and also where others are renewed already.
func TestMaintainMoves(t *testing.T) {
	t.Parallel()
	path := write(t, "anchors.yaml", "")
	synctest.Test(t, func(t *testing.T) {
		put := func(entries string) {
			replace(t, path, "anchors: ["+entries+", {peer: org-c, url: https://pki.c.example/anchor}]")
		}
		put("{peer: org-b, version: v1}")
		file, err := newAnchorFile(path, roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(`{"version": "` + r.URL.Host + `"}`)), Request: r}, nil
		}), nil)
		if err != nil {
			t.Fatal(err)
		}
		source := &countedSource{AnchorSource: file}
		var peers []fedhttp.Peer
		for _, id := range []string{"b", "c"} {
			peers = append(peers, fedhttp.Peer{ID: "org-" + id, Origins: []string{"https://" + id + ".example"}})
		}
		transport, err := fedhttp.NewTransport(fedhttp.Config{Peers: peers, Anchors: source})
		if err != nil {
			t.Fatal(err)
		}
		defer transport.Close()
		defer maintained(t, file, transport)()
		soon := func(want string, fetches int64) {
			t.Helper()
			before := source.tried.Load()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if got := transport.Status()[0].AnchorVersion; got != want {
				t.Errorf("org-b is under %s, want %s", got, want)
			}
			if n := source.tried.Load() - before; n != fetches {
				t.Errorf("%d fetches, want %d", n, fetches)
			}
		}
		soon("v1", 2)
		put("{peer: org-b, url: https://one.b.example/anchor}")
		soon("one.b.example", 1)
		put("{peer: org-b, url: https://two.b.example/anchor}")
		soon("two.b.example", 1)

		// Also where it is not configured meanwhile.
		put("{peer: org-b, version: v3}")
		time.Sleep(2 * time.Hour)
		soon("v3", 0)
		if err := transport.SetPeers(peers[1:]); err != nil {
			t.Fatal(err)
		}
		put("{peer: org-b, url: https://four.b.example/anchor}")
		time.Sleep(2 * time.Second)
		if err := transport.SetPeers(peers); err != nil {
			t.Fatal(err)
		}
		soon("four.b.example", 0)
	})
}

// TestMaintainLeavesStanding: beside anchors that are renewed, one that stands in the file
// is not asked for until half of its life is over.
func TestMaintainLeavesStanding(t *testing.T) {
	t.Parallel()
	path := write(t, "anchors.yaml", "")
	synctest.Test(t, func(t *testing.T) {
		end := time.Now().Add(48 * time.Hour).Format(time.RFC3339)
		text := "anchors: [{peer: org-b, url: https://pki.b.example/anchor}, {peer: org-c, version: v1}, {peer: org-d, version: v1, expires_at: " + end + "}]"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := newAnchorFile(path, roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(`{"version": "v2"}`)), Request: r}, nil
		}), nil)
		if err != nil {
			t.Fatal(err)
		}
		var peers []fedhttp.Peer
		for _, id := range []string{"b", "c", "d"} {
			peers = append(peers, fedhttp.Peer{ID: "org-" + id, Origins: []string{"https://" + id + ".example"}})
		}
		transport, err := fedhttp.NewTransport(fedhttp.Config{Peers: peers, Anchors: file})
		if err != nil {
			t.Fatal(err)
		}
		defer transport.Close()
		defer maintained(t, file, transport)()
		failing := func() (ids string) {
			synctest.Wait()
			for _, p := range transport.Status() {
				if p.AnchorError != "" {
					ids += p.ID
				}
			}
			return ids
		}
		time.Sleep(20 * time.Hour)
		if ids := failing(); ids != "" {
			t.Errorf("fetches of %s fail", ids)
		}
		time.Sleep(10 * time.Hour)
		if ids := failing(); ids != "org-d" {
			t.Errorf("fetches of %q fail; want those of org-d, which nobody renews", ids)
		}
	})
}

// TestProxyMaintains: a gateway whose file of anchors gets its first URL fetches from it
// without a call that would need it.
func TestProxyMaintains(t *testing.T) {
	t.Parallel()
	asked := make(chan bool, 1)
	pki := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case asked <- true:
		default:
		}
		_, _ = io.WriteString(w, `{"version": "v2"}`)
	}))
	t.Cleanup(pki.Close)
	anchors := write(t, "anchors.yaml", "anchors: [{peer: org-b, version: v1}]")
	startProxy(t, "-peers", peersOf(t, newPeer(t, fedtest.Config{})), "-anchors", anchors)
	if err := os.WriteFile(anchors, []byte("anchors: [{peer: org-b, url: "+pki.URL+"}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case <-asked:
	case <-time.After(patience):
		t.Error("nobody fetches the anchor")
	}
}

// maintained has the file's anchors maintained until what it returns is called.
func maintained(t *testing.T, file *anchorFile, transport *fedhttp.Transport) (end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan bool)
	go func() {
		defer close(ended)
		file.maintain(ctx, transport)
	}()
	return func() {
		stop()
		<-ended
	}
}
