package bench

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/sony/gobreaker/v2"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
)

// Chain is what stands between a program and a base.
type Chain struct {
	Name  string // in the names of benchmarks
	Title string // in tables
	// Traced chains make spans, so what the others cost does not depend on the tracer.
	Traced bool
	over   func(base http.RoundTripper, t Telemetry, origin string) (http.RoundTripper, context.Context)
}

// Over puts the chain around base, for calls to origin. The Sender owns base.
func (c Chain) Over(base http.RoundTripper, t Telemetry, origin string) *Sender {
	s := &Sender{Name: c.Name, url: origin + path}
	if own, ok := base.(*http.Transport); ok {
		s.dials = new(atomic.Int64)
		own.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			s.dials.Add(1)
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	}
	rt, ctx := c.over(base, t, origin)
	s.rt, s.ctx = rt, ctx
	for _, of := range []http.RoundTripper{rt, base} { // fedhttp has a clone of base
		if pool, ok := of.(pool); ok {
			s.pools = append(s.pools, pool)
		}
	}
	s.end, _ = rt.(io.Closer)
	return s
}

type pool interface{ CloseIdleConnections() }

// around is a chain that needs no peer and no task.
func around(name, title string, traced bool, wrap func(http.RoundTripper, Telemetry) http.RoundTripper) Chain {
	return Chain{name, title, traced, func(base http.RoundTripper, t Telemetry, _ string) (http.RoundTripper, context.Context) {
		return wrap(base, t), context.Background()
	}}
}

// The chains. Each has the settings that its documentation begins with, its retries
// and breaker on.
var (
	Bare = around("bare", "bare", false, alone)
	// BareAgain is Bare once more: how far the two are apart is what the figures of a
	// run are good for.
	BareAgain = around("bare-again", "bare, once more", false, alone)
	// Busy computes for a microsecond before it sends, and nothing else: what work
	// costs that misses no cache and allocates nothing.
	Busy = around("busy", "a microsecond of work", false, func(base http.RoundTripper, _ Telemetry) http.RoundTripper { return busy{base} })

	Otelhttp  = around("otelhttp", "otelhttp", true, withOtelhttp)
	Gobreaker = around("gobreaker", "gobreaker", false, func(base http.RoundTripper, _ Telemetry) http.RoundTripper { return withBreaker(base) })
	// Naive has a span for each call.
	Naive = around("naive", "otelhttp(retryablehttp(gobreaker))", true, func(base http.RoundTripper, t Telemetry) http.RoundTripper {
		return withOtelhttp(withRetries(withBreaker(base)), t)
	})
	// NaiveAttempts has spans for calls and attempts, as fedhttp does: what a user
	// would build today.
	NaiveAttempts = around("naive-attempts", "otelhttp(retryablehttp(otelhttp(gobreaker)))", true, func(base http.RoundTripper, t Telemetry) http.RoundTripper {
		return withOtelhttp(withRetries(withOtelhttp(withBreaker(base), t)), t)
	})
	Fedhttp       = Chain{"fedhttp", "fedhttp", true, overFedhttp(false, false)}
	FedhttpAnchor = Chain{"fedhttp-anchor", "fedhttp, under a trust anchor", true, overFedhttp(true, false)}
	FedhttpTask   = Chain{"fedhttp-task", "fedhttp, a task with obligations", true, overFedhttp(true, true)}
)

// Chains are all of them, in the order of tables.
func Chains() []Chain {
	return []Chain{
		Bare, Otelhttp,
		around("retryablehttp", "retryablehttp", false, func(base http.RoundTripper, _ Telemetry) http.RoundTripper { return withRetries(base) }),
		Gobreaker,
		around("failsafehttp", "failsafehttp: retry and breaker", false, func(base http.RoundTripper, _ Telemetry) http.RoundTripper { return withFailsafe(base) }),
		Naive, NaiveAttempts, Fedhttp, FedhttpAnchor, FedhttpTask,
	}
}

// Essential are those that are measured in every case.
func Essential() []Chain { return []Chain{Bare, Otelhttp, NaiveAttempts, Fedhttp, FedhttpTask} }

func alone(base http.RoundTripper, _ Telemetry) http.RoundTripper { return base }

type busy struct{ base http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b busy) RoundTrip(req *http.Request) (*http.Response, error) {
	for begin := time.Now(); time.Since(begin) < time.Microsecond; {
		continue
	}
	return b.base.RoundTrip(req)
}

func withOtelhttp(base http.RoundTripper, t Telemetry) http.RoundTripper {
	return otelhttp.NewTransport(base, otelhttp.WithTracerProvider(t.Tracer), otelhttp.WithMeterProvider(t.Meter),
		otelhttp.WithPropagators(propagation.TraceContext{}))
}

func withRetries(base http.RoundTripper) http.RoundTripper {
	client := retryablehttp.NewClient()
	client.HTTPClient = &http.Client{Transport: base}
	client.Logger = nil // it would write two lines for each call
	return &retryablehttp.RoundTripper{Client: client}
}

// What fedhttp's own breaker has by default.
const (
	breakerFailures = 10
	breakerOpenFor  = 30 * time.Second
)

// breaker is gobreaker around a base. Answers from 500 are failures.
type breaker struct {
	base http.RoundTripper
	cb   *gobreaker.CircuitBreaker[*http.Response]
}

//nolint:bodyclose // there is no response here, only the type
func withBreaker(base http.RoundTripper) http.RoundTripper {
	return &breaker{base, gobreaker.NewCircuitBreaker[*http.Response](gobreaker.Settings{
		Timeout:     breakerOpenFor,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerFailures },
	})}
}

var errServer = errors.New("server error")

// RoundTrip implements http.RoundTripper.
func (b *breaker) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.cb.Execute(func() (*http.Response, error) {
		resp, err := b.base.RoundTrip(req)
		if err == nil && resp.StatusCode >= http.StatusInternalServerError {
			return resp, errServer
		}
		return resp, err
	})
	if errors.Is(err, errServer) {
		err = nil
	}
	return resp, err
}

//nolint:bodyclose // there is no response here, only the type
func withFailsafe(base http.RoundTripper) http.RoundTripper {
	return failsafehttp.NewRoundTripper(base, failsafehttp.NewRetryPolicyBuilder().Build(),
		circuitbreaker.NewBuilder[*http.Response]().
			HandleIf(func(resp *http.Response, err error) bool {
				return err != nil || resp.StatusCode >= http.StatusInternalServerError
			}).
			WithFailureThreshold(breakerFailures).WithDelay(breakerOpenFor).Build())
}
