package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"

	"go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/fedhttp/fedhttp"
)

// ownerOf returns the ID of the peer that a URL belongs to, "" where it is none's.
// The transport knows; its base sends nothing.
func ownerOf(ctx context.Context, peers []fedhttp.Peer, url string) (string, error) {
	nothing := make([]fedhttp.Peer, len(peers))
	for i, p := range peers { // who it is and where; nothing that could keep a call
		nothing[i] = fedhttp.Peer{ID: p.ID, Origins: p.Origins, AllowPlaintext: true}
	}
	transport, err := fedhttp.NewTransport(fedhttp.Config{
		Peers: nothing, Base: nobody{}, Logger: slog.New(slog.DiscardHandler),
		TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: noop.NewMeterProvider(),
	})
	if err != nil {
		return "", err
	}
	defer transport.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := transport.RoundTrip(req)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		d, _ := fedhttp.DecisionFromResponse(resp)
		return d.Peer, nil
	}
	var e *fedhttp.Error
	if errors.As(err, &e) {
		return e.Decision.Peer, nil
	}
	return "", err
}

// nobody is a base that sends nothing.
type nobody struct{}

func (nobody) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.ErrUnsupported }
