package fedhttp_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// maxChainAllocs is how many allocations the whole chain may add to a call.
const maxChainAllocs = 7

// chainStub is a base that answers 200 and allocates what any base does.
var chainStub = roundTripFunc(func(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		req.Body.Close()
	}
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: req,
	}, nil
})

// chainCase is a Transport and a task that goes through it.
type chainCase struct {
	name string
	task fedhttp.Task
	cfg  fedhttp.Config
}

func chainCases() []chainCase {
	key := fedhttp.PolicyKey{Peer: "b", Capability: "cap", Epoch: 1}
	book := &fedhttp.PolicyBook{}
	if err := book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: "sha256:1"}); err != nil {
		panic(err)
	}
	book.Accept(fedhttp.Policy{PolicyKey: key, Digest: "sha256:1"})
	anchors := anchorFunc(func(context.Context, string) (fedhttp.Anchor, error) {
		return fedhttp.Anchor{Version: "7", IssuedAt: time.Now()}, nil
	})
	return []chainCase{
		{name: "plain"},
		{name: "anchor", cfg: fedhttp.Config{Anchors: anchors}},
		{
			name: "obligations", cfg: fedhttp.Config{Anchors: anchors, Book: book},
			task: fedhttp.Task{ID: "t", Capability: "cap", Scope: "s", Obligations: fedhttp.Terms{"residency": "eu"}},
		},
	}
}

func (c chainCase) transport(tb testing.TB, provider trace.TracerProvider) *fedhttp.Transport {
	cfg := c.cfg
	cfg.Base, cfg.TracerProvider = chainStub, provider
	cfg.Peers = []fedhttp.Peer{{ID: "b", Origins: []string{"https://b.example"}}}
	tr, err := fedhttp.NewTransport(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { tr.Close() })
	return tr
}

// chainCall makes one request and sends it. A request is made for each call, as
// programs do; what that costs is the stub's as well.
func chainCall(ctx context.Context, tb testing.TB, rt http.RoundTripper, method string) {
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader("a body that is in memory")
	}
	req, err := http.NewRequestWithContext(ctx, method, "https://b.example/v1/tasks", body)
	if err != nil {
		tb.Fatal(err)
	}
	req.Header["Accept"] = chainAccept
	resp, err := rt.RoundTrip(req)
	if err != nil {
		tb.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		tb.Fatalf("status %d", resp.StatusCode)
	}
	resp.Body.Close()
}

var chainAccept = []string{"application/json"}

func chainAllocs(ctx context.Context, t *testing.T, rt http.RoundTripper, method string) float64 {
	return testing.AllocsPerRun(2000, func() { chainCall(ctx, t, rt, method) })
}

// TestAllocs holds what a call costs beyond its base.
func TestAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, c := range chainCases() {
		for name, provider := range map[string]trace.TracerProvider{"no provider": nil, "noop provider": noop.NewTracerProvider()} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				tr := c.transport(t, provider)
				ctx := t.Context()
				if c.task.Capability != "" {
					ctx = fedhttp.ContextWithTask(ctx, c.task)
				}
				added := map[string]float64{}
				for _, method := range []string{http.MethodGet, http.MethodPost} {
					stub := chainAllocs(ctx, t, chainStub, method)
					added[method] = chainAllocs(ctx, t, tr, method) - stub
					t.Logf("%s: %v allocations beyond the stub's %v", method, added[method], stub)
				}
				if added[http.MethodGet] > maxChainAllocs {
					t.Errorf("a GET costs %v allocations, want at most %d", added[http.MethodGet], maxChainAllocs)
				}
				if added[http.MethodPost] > added[http.MethodGet] {
					t.Errorf("a POST costs %v allocations, a GET %v", added[http.MethodPost], added[http.MethodGet])
				}
			})
		}
	}
}

func TestAllocsAuthorize(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	c := chainCases()[2]
	now := time.Now()
	for name, task := range map[string]fedhttp.Task{
		"accepted":       c.task,
		"not advertised": {Capability: "other", Obligations: c.task.Obligations},
		"no obligations": {Capability: "cap"},
		"no task":        {},
		"no capability":  {Obligations: c.task.Obligations},
	} {
		if allocs := testing.AllocsPerRun(2000, func() { _, _ = c.cfg.Book.Authorize("b", task, nil, now) }); allocs != 0 {
			t.Errorf("%s: %v allocations, want none", name, allocs)
		}
	}
}

// countedConn counts the writes on a connection.
type countedConn struct {
	net.Conn
	writes *atomic.Int32
}

func (c countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// TestOneWrite: a body in memory reaches net/http as it is, which then writes it
// together with the header. A wrapped body costs a second write.
func TestOneWrite(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	peer := fedtest.NewPeer(fedtest.Config{})
	defer peer.Close()
	writes := func(wrap func(*http.Transport) http.RoundTripper, body io.Reader) int32 {
		var count atomic.Int32
		base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return countedConn{conn, &count}, err
		}}
		defer base.CloseIdleConnections()
		resp, err := (&http.Client{Transport: wrap(base)}).Post(peer.URL+"/one", "text/plain", body)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return count.Load()
	}
	plain := func(base *http.Transport) http.RoundTripper { return base }
	federated := func(base *http.Transport) http.RoundTripper {
		return newTestTransport(t, fedhttp.Config{Base: base, Peers: []fedhttp.Peer{testPeer("b", peer.URL)}})
	}
	const text = "a body that is in memory"
	if got := writes(plain, strings.NewReader(text)); got != 1 {
		t.Fatalf("net/http itself writes %d times", got)
	}
	if got := writes(federated, strings.NewReader(text)); got != 1 {
		t.Errorf("%d writes, want 1", got)
	}
	// The measure shows the difference where there is one.
	if got := writes(plain, io.MultiReader(strings.NewReader(text))); got < 2 {
		t.Errorf("%d writes of a body that net/http does not know, want more than 1", got)
	}
	for _, e := range peer.Routing.Log() {
		if e.BodyBytes != int64(len(text)) {
			t.Errorf("%d bytes arrived, want %d", e.BodyBytes, len(text))
		}
	}
}
