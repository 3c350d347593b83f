package main

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/fedhttp/fedhttp"
)

// newWireClient makes a client for a server. end closes its idle connections,
// may be called again and again, and after it nothing is sent.
type newWireClient func(wireCase, *wireServer) (client *http.Client, end func(), err error)

// wireBase is what both clients stand on.
func wireBase(c wireCase, s *wireServer) *http.Transport {
	base := &http.Transport{MaxIdleConnsPerHost: c.pooled}
	if s.roots != nil {
		base.TLSClientConfig = &tls.Config{RootCAs: s.roots}
		base.ForceAttemptHTTP2 = true
	}
	return base
}

// newStock makes the client of today. go-retryablehttp has its defaults, but
// for the waits: by default these take 15 s.
func newStock(c wireCase, s *wireServer) (client *http.Client, end func(), err error) {
	base := wireBase(c, s)
	if !c.retryable {
		return &http.Client{Transport: base}, base.CloseIdleConnections, nil
	}
	retrying := retryablehttp.NewClient()
	retrying.Logger = nil
	retrying.RetryWaitMin, retrying.RetryWaitMax = 10*time.Millisecond, 100*time.Millisecond
	retrying.HTTPClient = &http.Client{Transport: base}
	return retrying.StandardClient(), base.CloseIdleConnections, nil
}

// newFenced makes a client with fedhttp and its defaults.
func newFenced(c wireCase, s *wireServer) (client *http.Client, end func(), err error) {
	transport, err := fedhttp.NewTransport(fedhttp.Config{
		Base:    wireBase(c, s),
		Anchors: &everNewer{},
		Peers: []fedhttp.Peer{{
			ID: orgB, Origins: []string{s.url},
			Retry: fedhttp.RetryPolicy{TrustHTTP2Refusal: c.trust},
		}},
		Logger: slog.New(slog.DiscardHandler), // of what operators are told
	})
	if err != nil {
		return nil, nil, err
	}
	return &http.Client{Transport: transport}, func() { _ = transport.Close() }, nil // nil, always
}

// everNewer has a newer anchor each time, so that all that may be sent again is.
type everNewer struct{ version atomic.Int64 }

func (a *everNewer) FetchAnchor(context.Context, string) (fedhttp.Anchor, error) {
	return fedhttp.Anchor{Version: strconv.FormatInt(a.version.Add(1), 10)}, nil
}
