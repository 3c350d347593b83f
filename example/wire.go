package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/fedhttp/fedhttp"
)

const (
	// plainLimit is how long the stock client may take for its one request: where
	// net/http sends it again and again it would not end for a long time, or ever.
	plainLimit = 3 * time.Second
	// fencedLimit is more than fedhttp needs: it ends by itself.
	fencedLimit = 10 * time.Second
)

// wireCase is a way in which a server treats a request that it has read whole,
// and the request.
type wireCase struct {
	name   string
	server string // what the server does, as the table says it
	method string
	key    bool // the request has an Idempotency-Key, so net/http takes it for safe to repeat
	pooled int  // connections that wait in the client's pool when it sends
	// answer is what the server sends on HTTP/2. Nil: the server speaks HTTP/1
	// and ends the connection without an answer.
	answer    func(stream uint32) []byte
	retryable bool // the stock client is go-retryablehttp, not net/http
	trust     bool // fedhttp's peer has TrustHTTP2Refusal
}

// promise is how often fedhttp delivers the one request.
func (c wireCase) promise() int64 {
	if c.trust {
		return 2
	}
	return 1
}

func (c wireCase) stock() string {
	if c.retryable {
		return "go-retryablehttp"
	}
	return "net/http"
}

var wireCases = []wireCase{
	{
		name: "HTTP/1 GET, 1 pooled", method: http.MethodGet, pooled: 1,
		server: "HTTP/1, GET on a kept-alive connection: ends the connection without an answer; 1 connection pooled",
	},
	{
		name: "HTTP/1 GET, 5 pooled", method: http.MethodGet, pooled: 5,
		server: "the same, 5 connections pooled",
	},
	{
		name: "HTTP/1 GET, 20 pooled", method: http.MethodGet, pooled: 20,
		server: "the same, 20 connections pooled",
	},
	{
		name: "HTTP/1 POST with a key", method: http.MethodPost, pooled: 1, key: true,
		server: "the same, POST with an `Idempotency-Key`; 1 connection pooled",
	},
	{
		name: "HTTP/2 PROTOCOL_ERROR", method: http.MethodPost, answer: protocolError,
		server: "HTTP/2 over TLS, POST: RST_STREAM PROTOCOL_ERROR",
	},
	{
		name: "HTTP/2 GOAWAY", method: http.MethodPost, answer: goAway,
		server: "HTTP/2 over TLS, POST: GOAWAY with last stream 0",
	},
	{
		name: "HTTP/2 REFUSED_STREAM", method: http.MethodPost, answer: refusedStream,
		server: "HTTP/2 over TLS, POST: RST_STREAM REFUSED_STREAM, for ever",
	},
	{
		name: "HTTP/2 refusal, trusted", method: http.MethodPost, answer: refusedStream, trust: true,
		server: "the same, fedhttp with `TrustHTTP2Refusal`",
	},
	{
		name: "go-retryablehttp", method: http.MethodPost, retryable: true,
		server: "HTTP/1, POST: ends the connection without an answer; go-retryablehttp (default policy, shorter waits) in the place of net/http",
	},
}

// wireRow is what was counted in a case.
type wireRow struct {
	Name    string    `json:"name"`
	Server  string    `json:"server"`
	Stock   string    `json:"stock_client"`
	Plain   wireCount `json:"plain"`
	Fedhttp wireCount `json:"fedhttp"`
}

// wireCount is what one client made of one request.
type wireCount struct {
	Deliveries int64  `json:"deliveries"` // whole requests, counted by the server
	Error      string `json:"error"`      // what the client reported, in short
}

// countWire runs every case with both clients, each with a server of its own.
func countWire(ctx context.Context, limit time.Duration, p *progress) ([]wireRow, error) {
	var rows []wireRow
	for _, c := range wireCases {
		r := wireRow{Name: c.name, Server: c.server, Stock: c.stock()}
		done := p.begin(c.name)
		var err error
		if r.Plain, err = c.count(ctx, newStock, limit); err == nil {
			r.Fedhttp, err = c.count(ctx, newFenced, fencedLimit)
		}
		done(err)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// count has one request sent, and returns how often the server read it.
func (c wireCase) count(ctx context.Context, newClient newWireClient, limit time.Duration) (wireCount, error) {
	server, err := startWire(ctx, c)
	if err != nil {
		return wireCount{}, err
	}
	defer server.close()
	client, end, err := newClient(c, server)
	if err != nil {
		return wireCount{}, err
	}
	defer end()
	if err := c.fillPool(ctx, client, server.url); err != nil {
		return wireCount{}, fmt.Errorf("filling the pool: %w", err)
	}
	sending, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("stopped after %v", limit))
	defer cancel()
	sent := c.send(sending, client, server.url)
	if sent != nil && ctx.Err() == nil && sending.Err() != nil {
		sent = context.Cause(sending)
	}
	cancel()
	if err := server.drain(ctx, end); err != nil {
		return wireCount{}, fmt.Errorf("waiting for the connections to end: %w", err)
	}
	return wireCount{Deliveries: server.whole.Load(), Error: errorKind(sent)}, nil
}

// fillPool leaves as many idle connections in the client's pool as the case
// wants: the server answers none of these requests before it has all of them.
func (c wireCase) fillPool(ctx context.Context, client *http.Client, url string) error {
	filled := make(chan error, c.pooled)
	for range c.pooled {
		go func() { filled <- exchange(ctx, client, http.MethodGet, url+warmPath, nil, nil) }()
	}
	var failed []error
	for range c.pooled {
		failed = append(failed, <-filled)
	}
	return errors.Join(failed...)
}

func (c wireCase) send(ctx context.Context, client *http.Client, url string) error {
	var body io.Reader
	header := http.Header{}
	if c.method == http.MethodPost {
		body = strings.NewReader(`{"task":"summarize"}`)
	}
	if c.key {
		header.Set("Idempotency-Key", "task-7")
	}
	return exchange(ctx, client, c.method, url+"/v1/tasks", header, body)
}

func exchange(ctx context.Context, client *http.Client, method, url string, header http.Header, body io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	if header != nil {
		req.Header = header
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return err
}

// errorKind says in a few words what a client reported.
func errorKind(err error) string {
	var failed *fedhttp.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &failed):
		return failed.Decision.Outcome.String()
	case errors.Is(err, io.EOF):
		return "EOF"
	}
	for below := err; below != nil; below = errors.Unwrap(below) {
		err = below
	}
	return err.Error()
}
