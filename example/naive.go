package main

import (
	"context"
	"crypto/tls"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/fedhttp/fedhttp/fedtest"
)

// newNaive makes the client that teams have today: go-retryablehttp with its
// defaults (the waits scaled down) and one change, retryFederationDenied. It
// reads B's anchor once, when it starts, and knows nothing of policies.
func newNaive(ctx context.Context, o *organisations, _ func(error)) (*client, error) {
	base := newBase()
	if o.edge != nil {
		base.TLSClientConfig = &tls.Config{RootCAs: o.edge.pool(), MinVersion: tls.VersionTLS12}
	}
	var anchor fedtest.Anchor
	if err := getJSON(ctx, &http.Client{Transport: base}, o.b.AnchorURL(), &anchor); err != nil {
		return nil, err
	}
	retrying := retryablehttp.NewClient()
	retrying.Logger = nil
	retrying.RetryMax = 3
	retrying.RetryWaitMin = scaled(time.Second)
	retrying.RetryWaitMax = scaled(30 * time.Second)
	retrying.CheckRetry = retryFederationDenied
	retrying.HTTPClient = &http.Client{Transport: anchored{base, anchor.Version}}
	return &client{Client: retrying.StandardClient(), close: base.CloseIdleConnections}, nil
}

// retryFederationDenied is the library's default policy, and the line that
// teams add to it once calls to a peer have failed with "403 FederationDenied"
// and gone through later. From the status and the body it cannot be told that
// the ones that went through were dropped by the routing layer, and that all
// others are answers of a policy engine, which counts each of them.
func retryFederationDenied(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if err == nil && ctx.Err() == nil && resp.StatusCode == http.StatusForbidden && resp.Header.Get(fedtest.HeaderCorrelationID) != "" {
		return true, nil
	}
	return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
}

// anchored names the anchor that the client started with in each request.
type anchored struct {
	http.RoundTripper
	version string
}

func (a anchored) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set(fedtest.HeaderAnchorVersion, a.version)
	return a.RoundTripper.RoundTrip(req)
}
