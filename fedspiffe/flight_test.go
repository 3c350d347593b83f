package fedspiffe_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedspiffe"
	"github.com/fedhttp/fedhttp/fedtest"
)

// TestFetchIsShared: ten peers of one trust domain ask while a fetch is on its way.
// They share the next, which began after they asked, and one that gives up takes it
// from nobody.
func TestFetchIsShared(t *testing.T) {
	fedtest.CheckLeaks(t)
	t.Parallel()
	p := newPublisher(t, bundleOf(1, newCA(t, domainB)))
	asked, release := make(chan struct{}, 100), make(chan struct{})
	e, _ := webEndpoint(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-release
		p.ServeHTTP(w, r)
	}))
	peers := map[string]fedspiffe.Peer{}
	for i := range 10 {
		peers[fmt.Sprint(i)] = fedspiffe.Peer{TrustDomain: domainB, AnyServer: true, Endpoint: e}
	}
	s, err := fedspiffe.New(fedspiffe.Config{Peers: peers})
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan fedhttp.Anchor, 1)
	go func() {
		a, err := s.FetchAnchor(t.Context(), "0")
		if err != nil {
			t.Error(err)
		}
		first <- a
	}()
	<-asked
	p.bundle.Store(bundleOf(2, newCA(t, domainB))) // the first has asked, and is answered with this later on

	quitter, quit := context.WithCancel(t.Context())
	quitted := make(chan error, 1)
	go func() {
		_, err := s.FetchAnchor(quitter, "0") // begins the one that the others share
		quitted <- err
	}()
	fedspiffe.AwaitWaiters(s, "0", 1)
	var group sync.WaitGroup
	for id := range peers {
		group.Go(func() {
			if a, err := s.FetchAnchor(t.Context(), id); err != nil || !strings.HasPrefix(a.Version, "spiffe:2:") {
				t.Errorf("%s: %+v, %v", id, a.Version, err)
			}
		})
	}
	fedspiffe.AwaitWaiters(s, "0", 11)
	quit()
	if err := <-quitted; !errors.Is(err, context.Canceled) {
		t.Errorf("who gave up: %v", err)
	}
	close(release)
	<-first
	group.Wait()
	if n := p.fetches.Load(); n != 2 {
		t.Errorf("%d fetches, want 2", n)
	}
}

// TestFetchPanics: what Config.Base does on the way is an error of that fetch.
func TestFetchPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := fedspiffe.New(fedspiffe.Config{
			Base: &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { panic("proxy") }},
			Peers: map[string]fedspiffe.Peer{"org-b": {
				TrustDomain: domainB, Servers: []spiffeid.ID{registry}, Endpoint: fedspiffe.Endpoint{URL: "https://b.example", Profile: fedspiffe.HTTPSWeb},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := s.FetchAnchor(t.Context(), "org-b"); err == nil || !strings.Contains(err.Error(), `panicked: "proxy"`) {
				t.Errorf("%v, want the panic as an error", err)
			}
		}
	})
}

// TestFetchEndsWithItsLastWaiter: a fetch that nobody waits for is broken off, long
// before its own limit, and the next who asks gets another.
func TestFetchEndsWithItsLastWaiter(t *testing.T) {
	fedtest.CheckLeaks(t)
	t.Parallel()
	asked, gone := make(chan struct{}), make(chan struct{})
	e, _ := webEndpoint(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
	}))
	s := newSource(t, e, nil)
	fedspiffe.SetFetchTimeout(s, "org-b", time.Hour)
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := s.FetchAnchor(ctx, "org-b")
			ended <- err
		}()
		<-asked
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-gone
	}
}
