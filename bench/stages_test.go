package bench

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/fedhttp/fedhttp"
)

// What these tests hold is that no chain is measured that leaves out what it is
// there for: each call of a benchmark goes through every stage.

// watched is a Stub that keeps what it was asked. The first fail requests are
// answered with 503.
type watched struct {
	mu     sync.Mutex
	fail   int
	seen   []http.Header
	bodies []string
}

func (w *watched) RoundTrip(req *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	body := ""
	if req.Body != nil {
		all, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		body = string(all)
	}
	w.seen, w.bodies = append(w.seen, req.Header.Clone()), append(w.bodies, body)
	resp, err := Stub{}.RoundTrip(req)
	if len(w.seen) <= w.fail {
		resp.StatusCode = http.StatusServiceUnavailable
	}
	return resp, err
}

// spansOf is how many spans a call has.
var spansOf = map[string]int{
	"otelhttp": 1, "naive": 1, "naive-attempts": 2, "fedhttp": 2, "fedhttp-anchor": 2, "fedhttp-task": 2, "least": 2,
}

// measured are all chains that are measured anywhere.
func measured() []Chain { return append(Chains(), BareAgain, Busy, Least) }

func TestEveryCallIsSent(t *testing.T) {
	t.Parallel()
	for _, c := range measured() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			base := &watched{}
			s := c.Over(base, none(), Origin)
			defer s.Close()
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPost} {
				if err := s.Send(method); err != nil {
					t.Fatal(err)
				}
			}
			if len(base.seen) != 3 {
				t.Fatalf("%d requests, want 3", len(base.seen))
			}
			for i, want := range []string{"", kib, kib} {
				if base.bodies[i] != want {
					t.Errorf("request %d has a body of %d bytes, want %d", i, len(base.bodies[i]), len(want))
				}
				if base.seen[i].Get("Accept") != accept[0] {
					t.Errorf("request %d lost its header: %v", i, base.seen[i])
				}
			}
			if len(kib) != 1024 {
				t.Errorf("a POST sends %d bytes", len(kib))
			}
		})
	}
}

// TestSpans: as many as the table says for each sampled call, none that is
// recorded otherwise, and the peer sees a trace context wherever there is a tracer.
func TestSpans(t *testing.T) {
	t.Parallel()
	const calls = 5
	for _, c := range measured() {
		for _, sampler := range []sdktrace.Sampler{nil, sdktrace.NeverSample(), sdktrace.AlwaysSample()} {
			recorder := tracetest.NewSpanRecorder()
			telemetry, want := none(), 0
			telemetry.Tracer = tracenoop.NewTracerProvider()
			if sampler != nil {
				telemetry.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithSpanProcessor(recorder))
			}
			if sampler == sdktrace.AlwaysSample() {
				want = spansOf[c.Name]
			}
			base := &watched{}
			s := c.Over(base, telemetry, Origin)
			for range calls {
				if err := s.Send(http.MethodGet); err != nil {
					t.Fatal(err)
				}
			}
			s.Close()
			ended := slices.DeleteFunc(recorder.Ended(), func(s sdktrace.ReadOnlySpan) bool {
				return s.Name() == "federation.anchor.refresh" // of the first call
			})
			if got := len(ended); got != want*calls {
				t.Errorf("%s, %v: %d spans, want %d", c.Name, sampler, got, want*calls)
			}
			for _, h := range base.seen {
				if got, want := h.Get("Traceparent") != "", sampler != nil && c.Traced; got != want {
					t.Errorf("%s, %v: a trace context is %v, want %v", c.Name, sampler, got, want)
				}
			}
			for _, span := range ended {
				if len(span.Attributes()) < 2 {
					t.Errorf("%s: %s has the attributes %v", c.Name, span.Name(), span.Attributes())
				}
			}
		}
	}
}

// TestOneInHundred: so many of the traces are sampled, give or take seven standard
// deviations.
func TestOneInHundred(t *testing.T) {
	t.Parallel()
	tracer := OneInHundred().Tracer.Tracer("test")
	sampled := 0
	for range 20_000 {
		_, span := tracer.Start(context.Background(), "test")
		if span.SpanContext().IsSampled() {
			sampled++
		}
		span.End()
	}
	if sampled < 100 || sampled > 300 {
		t.Errorf("%d of 20,000 are sampled", sampled)
	}
}

// TestMetered: what the SDK counts is each call.
func TestMetered(t *testing.T) {
	t.Parallel()
	const calls = 5
	for name, want := range map[string]map[string]uint64{
		"otelhttp":       {"http.client.request.duration": calls},
		"naive-attempts": {"http.client.request.duration": 2 * calls},
		"fedhttp": {
			"http.client.request.duration": calls, "federation.client.decisions": calls, "federation.client.attempts": calls,
		},
	} {
		reader := sdkmetric.NewManualReader()
		telemetry := none()
		telemetry.Meter = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
		s := byName(t, name).Over(Stub{}, telemetry, Origin)
		for range calls {
			if err := s.Send(http.MethodGet); err != nil {
				t.Fatal(err)
			}
		}
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		s.Close()
		got := map[string]uint64{}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				switch data := m.Data.(type) {
				case metricdata.Histogram[float64]:
					got[m.Name] += data.DataPoints[0].Count
				case metricdata.Sum[int64]:
					got[m.Name] += uint64(data.DataPoints[0].Value) //nolint:gosec // a count
				}
			}
		}
		for instrument, n := range want {
			if got[instrument] != n {
				t.Errorf("%s: %s is %d, want %d", name, instrument, got[instrument], n)
			}
		}
	}
}

func byName(t *testing.T, name string) Chain {
	for _, c := range measured() {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no chain %q", name)
	return Chain{}
}

// decide makes a call and returns its decision.
func decide(t *testing.T, s *Sender) fedhttp.Decision {
	t.Helper()
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, s.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.rt.RoundTrip(req)
	if err != nil {
		var failed *fedhttp.Error
		if !errors.As(err, &failed) {
			t.Fatal(err)
		}
		return failed.Decision
	}
	resp.Body.Close()
	d, ok := fedhttp.DecisionFromResponse(resp)
	if !ok {
		t.Fatal("a response without a decision")
	}
	return d
}

// TestPreflight: a task is looked up in the book, and goes out under what that
// says; a plain call needs nothing of it.
func TestPreflight(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		basis  fedhttp.Basis
		digest string
		anchor string
	}{
		"fedhttp":        {basis: fedhttp.BasisNoObligation},
		"fedhttp-anchor": {basis: fedhttp.BasisNoObligation, anchor: "7"},
		"fedhttp-task":   {basis: fedhttp.BasisAccepted, digest: digest, anchor: "7"},
	} {
		base := &watched{}
		s := byName(t, name).Over(base, none(), Origin)
		d := decide(t, s)
		s.Close()
		if d.Outcome != fedhttp.OutcomeDelivered || d.Basis != want.basis || d.PolicyDigest != want.digest || d.AnchorVersion != want.anchor {
			t.Errorf("%s: %+v", name, d)
		}
		h := base.seen[0]
		if h.Get("X-Federation-Policy-Digest") != want.digest || h.Get("X-Federation-Anchor-Version") != want.anchor {
			t.Errorf("%s: sent %v", name, h)
		}
	}
	// And with nothing agreed the same task is not sent.
	base := &watched{}
	tr := must(fedhttp.NewTransport(fedhttp.Config{Base: base, Logger: quiet, Peers: []fedhttp.Peer{
		{ID: peerID, Origins: []string{Origin}, Hold: fedhttp.HoldPolicy{Max: -1}},
	}}))
	defer tr.Close()
	s := byName(t, "fedhttp-task").Over(Stub{}, none(), Origin)
	defer s.Close()
	if err := Call(s.ctx, tr, http.MethodGet, s.url); !errors.Is(err, fedhttp.ErrPolicyUnresolved) || len(base.seen) != 0 {
		t.Errorf("%v, and %d requests were sent", err, len(base.seen))
	}
}

// TestBreakers: each chain that has a breaker stops sending to a server that fails.
func TestBreakers(t *testing.T) {
	t.Parallel()
	for _, c := range Chains() {
		switch c.Name {
		case "bare", "otelhttp", "retryablehttp":
			continue
		case "naive", "naive-attempts": // have the breaker of gobreaker, and retries that wait for seconds
			continue
		}
		base := &watched{fail: 1 << 20}
		s := c.Over(base, none(), Origin)
		for range 3 * breakerFailures {
			_ = s.Send(http.MethodGet)
		}
		s.Close()
		if got := len(base.seen); got != breakerFailures {
			t.Errorf("%s: sent %d times to a server that fails, want %d", c.Name, got, breakerFailures)
		}
	}
}

// TestRetries: those chains that retry do, and what the server answered at last is
// what the caller sees.
func TestRetries(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"retryablehttp", "failsafehttp", "naive", "naive-attempts"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := &watched{fail: 1}
			s := byName(t, name).Over(base, none(), Origin)
			defer s.Close()
			if err := s.Send(http.MethodPost); err != nil {
				t.Fatal(err)
			}
			if len(base.seen) != 2 || base.bodies[1] != kib {
				t.Errorf("%d requests, the bodies %d", len(base.seen), len(base.bodies[len(base.bodies)-1]))
			}
		})
	}
}

// routing is a base that says once that the request did not reach the policy.
type routing struct{ watched }

func (r *routing) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.watched.RoundTrip(req)
	if resp.StatusCode == http.StatusServiceUnavailable {
		resp.Header.Set("X-Federation-Policy-Evaluated", "false")
	}
	return resp, err
}

// TestResend: fedhttp as it is measured mends a failure of the routing.
func TestResend(t *testing.T) {
	t.Parallel()
	base := &routing{watched{fail: 1}}
	s := FedhttpTask.Over(base, none(), Origin)
	defer s.Close()
	d := decide(t, s)
	if d.Outcome != fedhttp.OutcomeDelivered || d.Attempts != 2 || len(base.seen) != 2 {
		t.Errorf("%+v after %d requests", d, len(base.seen))
	}
}

// TestFence: over a real base, what net/http would send again by itself is
// stopped.
func TestFence(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int64{"bare": 3, "fedhttp": 2} {
		var calls counter
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if calls.add() == 2 { // on the connection that the first call has left
				conn, _, err := http.NewResponseController(w).Hijack()
				if err == nil {
					conn.Close()
				}
			}
		}))
		s := byName(t, name).Over(&http.Transport{}, none(), server.URL)
		if err := s.Send(http.MethodGet); err != nil {
			t.Fatal(err)
		}
		err := s.Send(http.MethodGet)
		if (err != nil) != (name == "fedhttp") {
			t.Errorf("%s: %v", name, err)
		}
		if got := calls.value(); got != want {
			t.Errorf("%s: the server got %d requests, want %d", name, got, want)
		}
		s.Close()
		server.Close()
	}
}

type counter struct {
	mu sync.Mutex
	n  int64
}

func (c *counter) add() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n
}

func (c *counter) value() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// TestLoopback: the servers speak what they are named after, and every chain's
// calls arrive with their bodies.
func TestLoopback(t *testing.T) {
	t.Parallel()
	for proto, major := range map[string]int{"h1": 1, "h2": 2} {
		server := Serve(proto)
		for _, c := range measured() {
			s := c.Over(server.Base(), none(), server.URL)
			calls, received := server.Calls.Load(), server.Received.Load()
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				if err := s.Send(method); err != nil {
					t.Fatalf("%s, %s: %v", proto, c.Name, err)
				}
			}
			req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, s.url, strings.NewReader(""))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := s.rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(body) != answer || resp.ProtoMajor != major {
				t.Errorf("%s, %s: %q, %s, %v", proto, c.Name, body, resp.Proto, err)
			}
			if calls, received = server.Calls.Load()-calls, server.Received.Load()-received; calls != 3 || received != 1024 {
				t.Errorf("%s, %s: %d requests with %d bytes arrived", proto, c.Name, calls, received)
			}
			s.Close()
		}
		server.Close()
	}
}

// TestGrowth: the tasks of the benchmarks of growth go to the peer and the key
// that they are meant for.
func TestGrowth(t *testing.T) {
	t.Parallel()
	const keys = 3 * keysPerPeer
	peers, urls := Peers(keys / keysPerPeer)
	tr := must(fedhttp.NewTransport(fedhttp.Config{Base: Stub{}, Peers: peers, Book: FillBook(keys)}))
	defer tr.Close()
	used := map[[2]string]bool{}
	for _, i := range Order(keys, false) {
		ctx := fedhttp.ContextWithTask(context.Background(), fedhttp.Task{
			Capability: capabilityName(i % keysPerPeer), Obligations: obligations,
		})
		d := decide(t, &Sender{rt: tr, ctx: ctx, url: urls[i/keysPerPeer]})
		if d.Outcome != fedhttp.OutcomeDelivered || d.Basis != fedhttp.BasisAccepted || d.Peer != peers[i/keysPerPeer].ID {
			t.Fatalf("%d: %+v", i, d)
		}
		used[[2]string{d.Peer, d.Capability}] = true
	}
	if len(used) != keys {
		t.Errorf("%d keys were used, want %d", len(used), keys)
	}
	if hot := Order(keys, true); len(hot) != 1 {
		t.Errorf("hot uses %d", len(hot))
	}
}
