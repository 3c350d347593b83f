package fedhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

const (
	// hostileAtOnce is how many hostile servers are met at the same time: most of
	// the time is spent waiting for those that do not answer.
	hostileAtOnce = 16
	// hostileAttempt is the AttemptTimeout, the bound of whoever gets no answer.
	hostileAttempt = 150 * time.Millisecond
	// hostileCall bounds a call as a whole: its body may never end.
	hostileCall = 500 * time.Millisecond
	// hostileWatchdog is how long a whole meeting may take, on any machine.
	hostileWatchdog = 90 * time.Second
)

// TestHostileServers meets every server of the hostile suite, in clear text and
// over TLS, with calls at once and one after another, with a body and without.
// Whatever the server does: it sees each task once, unless it has said itself
// that routing turned it away; every call ends; and afterwards nothing is left.
func TestHostileServers(t *testing.T) {
	t.Parallel()
	slots := make(chan struct{}, hostileAtOnce)
	var group sync.WaitGroup
	for _, h := range fedtest.HostileServers() {
		for mode, start := range map[string]func(fedtest.Hostile) *fedtest.HostileServer{
			"clear": fedtest.Hostile.Start, "tls": fedtest.Hostile.StartTLS,
		} {
			slots <- struct{}{}
			group.Go(func() {
				defer func() { <-slots }()
				t.Run(h.Name+"/"+mode, func(t *testing.T) {
					checkLeaks(t)
					watched(t, func() { newHostileMeeting(t, start(h)).run() })
				})
			})
		}
	}
	group.Wait()
}

// watched fails the test with all stacks where the function takes too long.
func watched(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	timer := time.AfterFunc(hostileWatchdog, func() {
		stacks := make([]byte, 1<<20)
		panic(fmt.Sprintf("%s hangs:\n%s", t.Name(), stacks[:runtime.Stack(stacks, true)]))
	})
	defer timer.Stop()
	go func() { defer close(done); f() }()
	<-done
}

// hostileMeeting is a peer with two origins, a hostile one and a good one. They
// share the breaker, so the good one shows in which state the other has left it.
type hostileMeeting struct {
	t       *testing.T
	byHand  bool // attempts are ended by hand, and no call by its time: see wholeBody
	server  *fedtest.HostileServer
	good    *httptest.Server
	tr      *fedhttp.Transport
	anchors atomic.Int64
	tasks   atomic.Int64
}

func newHostileMeeting(t *testing.T, server *fedtest.HostileServer) *hostileMeeting {
	m := &hostileMeeting{t: t, server: server, byHand: sentAgainByHTTP2(server.Hostile)}
	t.Cleanup(server.Close)
	m.good = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	m.good.Config.ErrorLog = quietLog
	base := server.Transport()
	base.MaxResponseHeaderBytes = 256 << 10 // a flood takes its time to reach 10 MiB
	if server.Certificate() != nil {
		m.good.EnableHTTP2 = server.Hostile.HTTP2
		m.good.StartTLS()
		base.TLSClientConfig.RootCAs.AddCert(m.good.Certificate())
	} else {
		m.good.Config.Protocols = new(http.Protocols)
		m.good.Config.Protocols.SetHTTP1(true)
		m.good.Config.Protocols.SetUnencryptedHTTP2(true)
		m.good.Start()
	}
	t.Cleanup(m.good.Close)
	m.tr = newTestTransport(t, fedhttp.Config{
		Base: base, Logger: quietLogger, Peers: []fedhttp.Peer{m.peer(hostileAttempt, fedhttp.BreakerPolicy{Failures: 1000})},
		// Every fetch brings a newer anchor, so that nothing but the verdict keeps a
		// request from being sent again.
		Anchors: anchorFunc(func(context.Context, string) (fedhttp.Anchor, error) {
			return fedhttp.Anchor{Version: fmt.Sprint(m.anchors.Add(1))}, nil
		}),
		Escalator: escalatorFunc(func(context.Context, fedhttp.Escalation) {}),
	})
	return m
}

// sentAgainByHTTP2 reports whether net/http sends again by itself what the server refuses.
func sentAgainByHTTP2(h fedtest.Hostile) bool {
	return h.HTTP2 && slices.ContainsFunc([]string{"goaway", "refused-stream", "protocol-error"}, func(how string) bool {
		return strings.Contains(h.Name, how)
	})
}

func (m *hostileMeeting) peer(attempt time.Duration, breaker fedhttp.BreakerPolicy) fedhttp.Peer {
	if m.byHand {
		attempt = time.Minute
	}
	p := testPeer("b", m.server.URL)
	p.Origins = append(p.Origins, m.good.URL)
	p.Retry.AttemptTimeout = attempt
	p.Breaker = breaker
	p.Denial.HoldOff = -1 // a rejection would keep the next call from being sent
	return p
}

func (m *hostileMeeting) run() {
	// At once: neighbours on one HTTP/2 connection, many pooled HTTP/1 ones.
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() { m.call(i) })
	}
	group.Wait()
	// One after another, with whatever was left in the pool.
	for i := range 4 {
		m.call(i)
	}
	m.breakerWorks()

	status := m.tr.Status()[0]
	if status.InFlight != 0 || status.Held != 0 || status.Degraded {
		m.t.Errorf("afterwards the status is %+v", status)
	}
	if strings.Contains(m.server.Hostile.Name, "goaway") {
		return // net/http itself may lose the connection: see HostileServer.Drained
	}
	for m.server.Connections() > 0 { // under the watchdog
		m.tr.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		_ = m.server.Drained(ctx) // asked again
		cancel()
	}
}

// breakerWorks has the hostile server open the breaker and take its only trial.
// The trial comes back, whatever became of it: a good call closes the breaker.
func (m *hostileMeeting) breakerWorks() {
	breaker := fedhttp.BreakerPolicy{Failures: 1, OpenFor: 1}
	m.setPeer(hostileAttempt, breaker)
	m.call(0)
	m.call(1)
	m.setPeer(time.Minute, breaker) // a slow machine is no failure of the good server
	for {
		err := m.callGood()
		if err == nil {
			break
		}
		if !errors.Is(err, fedhttp.ErrPeerUnavailable) { // the breaker has yet to let a trial through
			m.t.Errorf("the good server: %v", err)
			return
		}
	}
	if got := m.tr.Status()[0].Breaker; got != "closed" {
		m.t.Errorf("after a good call the breaker is %s", got)
	}
}

func (m *hostileMeeting) setPeer(attempt time.Duration, breaker fedhttp.BreakerPolicy) {
	if err := m.tr.SetPeers([]fedhttp.Peer{m.peer(attempt, breaker)}); err != nil {
		m.t.Error(err)
	}
}

func (m *hostileMeeting) callGood() error {
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodPost, m.good.URL, strings.NewReader("good"))
	if err != nil {
		return err
	}
	resp, err := m.tr.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// call sends one task to the hostile server. Odd ones have no body, and every
// other body cannot be had twice.
func (m *hostileMeeting) call(i int) {
	limit := hostileCall
	if m.byHand {
		limit = time.Minute
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), limit)
	defer cancel()
	task := fmt.Sprintf("task-%d", m.tasks.Add(1))
	method, body := http.MethodGet, io.Reader(nil)
	switch i % 4 {
	case 0:
		method, body = http.MethodPost, strings.NewReader(strings.Repeat("b", 10_000))
	case 2:
		method, body = http.MethodPost, io.MultiReader(strings.NewReader("once"))
	}
	req, err := http.NewRequestWithContext(ctx, method, m.server.URL+"/v1/tasks", body)
	if err != nil {
		m.t.Error(err)
		return
	}
	if m.byHand {
		whole := &wholeBody{text: strings.Repeat("b", 10_000)}
		if i%4 == 0 {
			req.Body, _ = whole.get()
			req.GetBody = whole.get
		}
		returned := make(chan struct{})
		defer close(returned)
		go m.endAttempts(task, whole, returned)
	}
	req.Header.Set(fedtest.HeaderTask, task)
	if i%4 == 3 {
		req.Header.Set("Idempotency-Key", task) // which net/http takes as a leave to resend
	}
	resp, err := m.tr.RoundTrip(req)
	if (resp == nil) == (err == nil) {
		m.t.Errorf("%s: both or neither of %v and %v", task, resp, err)
		return
	}
	var d fedhttp.Decision
	if resp != nil {
		d, _ = fedhttp.DecisionFromResponse(resp)
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // it may be cut, or endless
		resp.Body.Close()
		err = d.Err()
	} else {
		var e *fedhttp.Error
		if !errors.As(err, &e) {
			m.t.Errorf("%s: %T is no *fedhttp.Error", task, err)
			return
		}
		d = e.Decision
	}
	m.checkDecision(task, d, err)
}

// endAttempts ends those of the task that take too long, until the call has returned.
func (m *hostileMeeting) endAttempts(task string, body *wholeBody, returned <-chan struct{}) {
	tick := time.NewTicker(hostileAttempt)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			body.end(func() {
				fedhttp.EndAttempts(m.tr, func(r *http.Request) bool { return r.Header.Get(fedtest.HeaderTask) == task })
			})
		case <-returned:
			return
		}
	}
}

func (m *hostileMeeting) checkDecision(task string, d fedhttp.Decision, err error) {
	sends := m.server.Sends(task)
	if sends > 1 && !m.server.Hostile.SaysRouting {
		m.t.Errorf("%s was seen %d times; %v (%v), %d attempts, delivery %v, evidence %v: %v", task, sends, d.Outcome, d.Reason, d.Attempts, d.Delivery, d.Evidence, err)
	}
	if sends > d.Attempts {
		m.t.Errorf("%s was seen %d times in %d attempts", task, sends, d.Attempts)
	}
	if sends > 0 && d.Attempts == 1 && d.Delivery == fedhttp.DeliveryNotDelivered {
		m.t.Errorf("%s was seen, and proven undelivered: %v", task, err)
	}
	if err == nil {
		return
	}
	if text := err.Error(); !printableASCII(text, 2048) {
		m.t.Errorf("%s: the error has %d bytes, or is not printable: %q", task, len(text), text)
	}
	if !printableASCII(d.CorrelationID, 2048) || !printableASCII(d.PolicyReason, 2048) {
		m.t.Errorf("%s: the decision quotes the server as it came: %+v", task, d)
	}
}

// A peer cannot put into a header of ours what no header can carry.
func TestGossipedValues(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	var book fedhttp.PolicyBook
	key := fedhttp.PolicyKey{Peer: "b", Capability: "c", Epoch: 1}
	if err := book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: "sha256:1\nX-Evil: 1"}); err == nil {
		t.Error("a digest with a line break was advertised")
	}
	tr := newTestTransport(t, fedhttp.Config{
		Peers: []fedhttp.Peer{testPeer("b", stubURL)}, Book: &book, Logger: quietLogger,
		Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
		}),
		Anchors: anchorFunc(func(context.Context, string) (fedhttp.Anchor, error) {
			return fedhttp.Anchor{Version: "v1\r\nX-Evil: 1"}, nil
		}),
	})
	d, err := get(t, tr, fedhttp.Task{Capability: "c"})
	if err != nil || d.Outcome != fedhttp.OutcomeDelivered || d.AnchorVersion != "" {
		t.Errorf("%+v, %v: want it delivered without an anchor", d, err)
	}
}
