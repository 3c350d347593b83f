package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// client is organisation A's way out: an ordinary http.Client, and what has to
// be ended when A is done with it. Both kinds of it serve the same code.
type client struct {
	*http.Client
	// book is what A knows of policies; nil for the stock client, which has
	// nowhere to put that.
	book  *fedhttp.PolicyBook
	close func()
}

// makeClient makes A's client for a run. Whatever fails later in the
// background ends the run through fail.
type makeClient func(ctx context.Context, o *organisations, fail func(error)) (*client, error)

// newBase is what both clients send through. A service sets its own limits;
// these keep a burst of released tasks from opening a connection each.
func newBase() *http.Transport {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxConnsPerHost = 32
	base.MaxIdleConnsPerHost = 32
	return base
}

// The headers by which A says what a task is about. They belong to B's
// interface, not to fedhttp, and both clients send them.
const (
	headerScope    = "X-Delegation-Scope"
	headerDeadline = "X-Policy-Deadline"
)

// send sends one task, and returns what became of it. It is the whole of what
// a caller does: fedhttp takes the task from the context, everything else is
// net/http. The error is nil for a task that the peer's application answered.
func (c *client) send(ctx context.Context, url string, task fedhttp.Task) (fedhttp.Decision, error) {
	ctx = fedhttp.ContextWithTask(ctx, task)
	body := bytes.NewReader([]byte(`{"task":"` + task.ID + `"}`))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return fedhttp.Decision{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(fedtest.HeaderClient, orgA)
	if task.Scope != "" {
		req.Header.Set(headerScope, task.Scope)
	}
	if !task.PolicyDeadline.IsZero() {
		req.Header.Set(headerDeadline, task.PolicyDeadline.UTC().Format(http.TimeFormat))
	}
	resp, err := c.Do(req)
	if err != nil {
		// Nothing usable came back: not sent, no response, or withheld.
		var failed *fedhttp.Error
		if errors.As(err, &failed) {
			return failed.Decision, err
		}
		return fedhttp.Decision{}, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	if decision, ok := fedhttp.DecisionFromResponse(resp); ok {
		return decision, decision.Err()
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return fedhttp.Decision{}, errors.New(resp.Status)
	}
	return fedhttp.Decision{}, nil
}

// getJSON reads url into v.
func getJSON(ctx context.Context, client *http.Client, url string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	return doJSON(client, req, v)
}

// postJSON sends in to url and reads the answer into out, which may be nil.
func postJSON(ctx context.Context, client *http.Client, url, from string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(fedtest.HeaderClient, from)
	return doJSON(client, req, out)
}

func doJSON(client *http.Client, req *http.Request, v any) error {
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", req.Method, req.URL, resp.Status)
	}
	if v == nil {
		return nil
	}
	return json.Unmarshal(body, v)
}
