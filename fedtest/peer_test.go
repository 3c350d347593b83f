package fedtest_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

func TestCloseReleasesHungRequests(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]fedtest.Step{
		"hang":    fedtest.Hang(),
		"delay":   fedtest.Delay(time.Hour, fedtest.Pass()),
		"drip":    fedtest.Drip(200, nil, "slow", time.Hour),
		"endless": fedtest.Endless(200, nil, 0),
		"custom":  func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachMode(t, fedtest.Config{ErrorLog: discardLog}, func(t *testing.T, p *fedtest.Peer) {
				p.Otherwise(step)
				var clients sync.WaitGroup
				for range 3 {
					clients.Go(func() {
						resp, err := p.Client().Do(request(t, p.URL, "body"))
						if err != nil {
							return
						}
						defer resp.Body.Close()
						<-t.Context().Done() // the body is not read
					})
				}
				for len(p.Routing.Log()) < 3 {
					time.Sleep(time.Millisecond)
				}
				p.Close()
				p.Close()
				t.Cleanup(clients.Wait)
			})
		})
	}
}

func TestClosedPeerRefuses(t *testing.T) {
	t.Parallel()
	eachMode(t, fedtest.Config{}, func(t *testing.T, p *fedtest.Peer) {
		get(t, p, "/")
		p.Close()
		_, err := do(p.Client(), request(t, p.URL, ""))
		var dial *net.OpError
		if !errors.As(err, &dial) || dial.Op != "dial" {
			t.Errorf("error %v", err)
		}
	})
}

func TestStartTwice(t *testing.T) {
	t.Parallel()
	p := newPeer(t, fedtest.Config{})
	for _, start := range []func(){p.Start, p.StartTLS} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			start()
		}()
	}
}

func TestTransport(t *testing.T) {
	t.Parallel()
	fedtest.CheckLeaks(t)
	b, c := fedtest.NewUnstartedPeer(fedtest.Config{}), fedtest.NewPeer(fedtest.Config{})
	defer b.Close()
	defer c.Close()
	if b.URL == c.URL || !strings.HasPrefix(b.URL, "http://127.") {
		t.Fatal(b.URL, c.URL)
	}
	client := &http.Client{Transport: fedtest.Transport(b, c)}
	for _, p := range []*fedtest.Peer{b, c} {
		if a, err := do(client, request(t, p.URL+"/x", "")); err != nil || a.status != 200 {
			t.Error(a, err)
		}
		wantEqual(t, "sends", p.Sends("/x"), 1)
	}
	if !strings.HasPrefix(c.Routing.Log()[0].Remote, "memory:") {
		t.Error("not in memory")
	}
	client = &http.Client{Transport: b.Transport()}
	_, err := do(client, request(t, c.URL+"/x", ""))
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("another's address: %v", err)
	}
	wantEqual(t, "sends", c.Sends("/x"), 1)

	b.RefuseConnections(2)
	client = &http.Client{Transport: b.Transport()}
	var events []string
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { events = append(events, "get") },
		GotConn: func(i httptrace.GotConnInfo) { events = append(events, fmt.Sprint("got ", i.Reused)) },
	}
	for range 4 {
		req := request(t, b.URL+"/y", "")
		_, err := do(client, req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
		events = append(events, fmt.Sprint(err == nil))
	}
	want := "get false get false get got false true get got true true"
	wantEqual(t, "events", strings.Join(events, " "), want)
	wantEqual(t, "sends", b.Sends("/y"), 2)
}

func TestTLS(t *testing.T) {
	t.Parallel()
	fedtest.CheckLeaks(t)
	p := fedtest.NewTLSPeer(fedtest.Config{
		TLS: &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert}, ErrorLog: discardLog,
	})
	defer p.Close()
	if _, err := do(p.Client(), request(t, p.URL, "")); err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("error %v", err)
	}
	stranger := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: newPeer(t, fedtest.Config{}).CertPool()}}
	if _, err := do(&http.Client{Transport: stranger}, request(t, p.URL, "")); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("error %v", err)
	}
	wantEqual(t, "log", len(p.Routing.Log()), 0)

	q := fedtest.NewTLSPeer(fedtest.Config{})
	defer q.Close()
	for _, transport := range []*http.Transport{q.Transport(), {TLSClientConfig: &tls.Config{RootCAs: q.CertPool()}}} {
		if a, err := do(&http.Client{Transport: transport}, request(t, q.URL, "")); err != nil || a.status != 200 {
			t.Error(a, err)
		}
		transport.CloseIdleConnections()
	}
}

// Whatever happens at once, each request is counted once, at each layer that
// it reached.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	const workers, each = 8, 25
	eachMode(t, fedtest.Config{Policy: narrowed, QuarantineAt: 100}, func(t *testing.T, p *fedtest.Peer) {
		client := p.Client()
		client.Transport.(*http.Transport).MaxConnsPerHost = workers
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				for i := range each {
					task := fmt.Sprintf("task-%d", i)
					header := []string{fedtest.HeaderTask, task}
					switch (w + i) % 4 {
					case 0:
						header = append(header, "X-Scope", "narrowed")
					case 1:
						header = append(header, fedtest.HeaderAnchorVersion, "none")
					case 2:
						header = append(header, fedtest.HeaderClient, "other")
					}
					if _, err := do(client, request(t, p.URL, "body", header...)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Go(func() {
			for range 20 {
				p.Rotate()
				p.SetDegraded(true)
				p.Agree("", fedtest.Advertisement{Capability: "c"})
				p.Advertise(fedtest.Advertisement{Capability: "c"})
				_, _, _, _ = p.Tasks(), p.Routing.Log(), p.Engine.Log(), p.Advertisements()
				_, _, _ = p.Clients(), p.Engine.Ledger(), p.Routing.Ledger()
			}
		})
		all.Wait()
		routing, engine := p.Routing.Ledger(), p.Engine.Ledger()
		wantEqual(t, "requests", routing.Requests, workers*each)
		wantEqual(t, "log", len(p.Routing.Log()), workers*each)
		wantEqual(t, "delivered", routing.Delivered, workers*each*3/4)
		wantEqual(t, "evaluations", engine.Evaluations, workers*each*3/4)
		wantEqual(t, "engine log", len(p.Engine.Log()), workers*each*3/4)
		wantEqual(t, "denials", engine.Denials, workers*each/4)
		wantEqual(t, "max per task", routing.MaxPerTask, workers)
		wantEqual(t, "max per task", engine.MaxEvaluationsPerTask, workers*3/4)
		wantEqual(t, "quarantined", engine.Quarantined, false)
		ids := map[string]bool{}
		for _, e := range append(p.Engine.Log(), p.Routing.Log()...) {
			if e.CorrelationID != "" {
				ids[e.CorrelationID] = true
			}
		}
		wantEqual(t, "correlation ids", len(ids), workers*each)
	})
}
