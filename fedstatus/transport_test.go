package fedstatus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedstatus"
	"github.com/fedhttp/fedhttp/fedtest"
)

type anchorFunc func(ctx context.Context, peer string) (fedhttp.Anchor, error)

func (f anchorFunc) FetchAnchor(ctx context.Context, peer string) (fedhttp.Anchor, error) {
	return f(ctx, peer)
}

// rig is a Transport with peers in memory and its page.
type rig struct {
	tr     *fedhttp.Transport
	book   *fedhttp.PolicyBook
	peers  map[string]*fedtest.Peer
	fails  map[string]error // of anchor fetches
	status http.Handler
}

func newRig(t *testing.T, cfg fedhttp.Config, ids ...string) *rig {
	t.Helper()
	r := &rig{book: &fedhttp.PolicyBook{}, peers: make(map[string]*fedtest.Peer), fails: make(map[string]error)}
	var all []*fedtest.Peer
	for _, id := range ids {
		peer := fedtest.NewUnstartedPeer(fedtest.Config{})
		t.Cleanup(peer.Close)
		all, r.peers[id] = append(all, peer), peer
		cfg.Peers = append(cfg.Peers, fedhttp.Peer{
			ID: id, Origins: []string{peer.URL}, Receipt: fedhttp.IgnoreReceipt,
			Breaker: fedhttp.BreakerPolicy{Failures: 2, OpenFor: time.Minute},
			Denial:  fedhttp.DenialPolicy{Budget: 3},
		})
	}
	base := fedtest.Transport(all...)
	base.DisableKeepAlives = true
	cfg.Base, cfg.Book = base, r.book
	if cfg.Anchors == nil {
		cfg.Anchors = anchorFunc(func(_ context.Context, peer string) (fedhttp.Anchor, error) {
			if err := r.fails[peer]; err != nil {
				return fedhttp.Anchor{}, err
			}
			return fedhttp.Anchor{Version: "1", ExpiresAt: time.Now().Add(time.Hour)}, nil
		})
	}
	cfg.Escalator = discard{}
	cfg.Coordinator = discard{}
	tr, err := fedhttp.NewTransport(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	r.tr, r.status = tr, fedstatus.Handler(tr)
	return r
}

type discard struct{}

func (discard) Escalate(context.Context, fedhttp.Escalation)         {}
func (discard) PolicyUnresolved(context.Context, fedhttp.Unresolved) {}

// call sends a task to the peer, by the way of the step, and drops what it gets.
func (r *rig) call(ctx context.Context, peer string, task fedhttp.Task, step fedtest.Step, change ...func(*http.Request)) error {
	path := "/" + task.ID
	if step != nil {
		r.peers[peer].On(path, step)
	}
	req, err := http.NewRequestWithContext(fedhttp.ContextWithTask(ctx, task), http.MethodGet, r.peers[peer].URL+path, nil)
	if err != nil {
		return err
	}
	for _, c := range change {
		c(req)
	}
	resp, err := r.tr.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func (r *rig) get(accept string) string {
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	req.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	r.status.ServeHTTP(w, req)
	return w.Body.String()
}

func (r *rig) json(t *testing.T) fedstatus.Status {
	t.Helper()
	var s fedstatus.Status
	if err := json.Unmarshal([]byte(r.get("application/json")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// text is the page's words, without its markup.
func (r *rig) text() string {
	_, body, _ := strings.Cut(r.get("text/html"), "<body>")
	body = regexp.MustCompile(`<(/?(t[hdr]|small|section|p|li|h\d|caption)\b)[^>]*>`).ReplaceAllString(body, "\n")
	body = regexp.MustCompile(`<[^>]*>`).ReplaceAllString(body, "")
	return regexp.MustCompile(`\n\s*`).ReplaceAllString(body, "\n")
}

func ambiguous(id string) fedtest.Step {
	return fedtest.Raw(403, http.Header{"X-Correlation-Id": {id}}, "")
}

// TestTransport follows a Transport through all that its page shows.
func TestTransport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fedhttp.Config{}, "well", "denies", "holds", "fails", "anchorless")
		r.fails["anchorless"] = errors.New("nobody answers")
		for id := range r.peers {
			if err := r.call(t.Context(), id, fedhttp.Task{ID: "first"}, nil); err != nil {
				t.Fatalf("%s: %v", id, err)
			}
		}
		began := time.Now()

		for i := range 3 {
			task := fedhttp.Task{ID: fmt.Sprint("d", i), Capability: fmt.Sprint("cap", i), Scope: "scope"}
			if err := r.call(t.Context(), "denies", task, fedtest.Deny("NARROWED")); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)

		ctx, release := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		if err := r.book.Advertise(fedhttp.Advertisement{PolicyKey: fedhttp.PolicyKey{Peer: "holds", Capability: "later", Epoch: 7}, Digest: "sha256:77"}); err != nil {
			t.Fatal(err)
		}
		for _, capability := range []string{"sooner", "later", "later"} {
			waiting.Go(func() {
				task := fedhttp.Task{ID: "h", Capability: capability, Obligations: fedhttp.Terms{"residency": "eu"}}
				if err := r.call(ctx, "holds", task, nil); !errors.Is(err, fedhttp.ErrPolicyUnresolved) {
					t.Errorf("held: %v", err)
				}
			})
			time.Sleep(5 * time.Second)
		}
		for _, id := range []string{"c-1", "c-2"} {
			if err := r.call(t.Context(), "fails", fedhttp.Task{ID: id, Capability: "risky"}, ambiguous(id)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)

		now := time.Now()
		at := func(ago time.Duration) time.Time { return now.Add(-ago).UTC().Truncate(time.Millisecond) }
		s := r.json(t)
		wantSummary := fedstatus.Summary{
			Peers: 5, NeedAttention: 3, Held: 3, HeldKeys: 2, OldestHeldSeconds: 25, Denials: 3,
			RecentEscalations: 2, LastEscalationAt: at(10 * time.Second),
			Problems: map[fedstatus.Problem]int{
				"breaker_open": 1, "breaker_half_open": 0, "denial_budget_spent": 1, "escalations": 1, "degraded": 1, "anchor_expired": 0, "anchor_refresh_failed": 1,
			},
		}
		if diff := cmp.Diff(wantSummary, s.Summary); diff != "" {
			t.Errorf("summary: -want +got\n%s", diff)
		}
		if !s.At.Equal(at(0)) {
			t.Errorf("at %v", s.At)
		}
		anchor := fedstatus.Anchor{Version: "1", AgeSeconds: now.Sub(began).Seconds(), ExpiresAt: began.Add(time.Hour).UTC()}
		wantPeers := []fedstatus.Peer{
			{ID: "fails", Problems: []fedstatus.Problem{"breaker_open", "escalations", "degraded"}, RecentEscalations: 2, LastEscalationAt: at(10 * time.Second), DenialsLeft: 3, Breaker: "open", BreakerRetryAt: at(-50 * time.Second), Degraded: true, Anchor: anchor},
			{ID: "denies", Problems: []fedstatus.Problem{"denial_budget_spent"}, Denials: 3, Breaker: "closed", Anchor: anchor},
			{ID: "anchorless", Problems: []fedstatus.Problem{"anchor_refresh_failed"}, DenialsLeft: 3, Breaker: "closed", Anchor: fedstatus.Anchor{Error: "nobody answers"}},
			{ID: "well", Problems: []fedstatus.Problem{}, DenialsLeft: 3, Breaker: "closed", Anchor: anchor},
			{ID: "holds", Problems: []fedstatus.Problem{}, Held: 3, HeldKeys: 2, DenialsLeft: 3, Breaker: "closed", Anchor: anchor},
		}
		for i := range wantPeers {
			wantPeers[i].Origins = []string{r.peers[wantPeers[i].ID].URL}
		}
		if diff := cmp.Diff(wantPeers, s.Peers, cmpopts.IgnoreFields(fedstatus.Anchor{}, "DueAt")); diff != "" {
			t.Errorf("peers: -want +got\n%s", diff)
		}
		for _, p := range s.Peers {
			if p.Anchor.DueAt.IsZero() {
				t.Errorf("%s: the next fetch is not known", p.ID)
			}
		}
		wantHeld := []fedstatus.HeldKey{
			{Peer: "holds", Capability: "sooner", Tasks: 1, OldestSeconds: 25},
			{Peer: "holds", Capability: "later", Tasks: 2, OldestSeconds: 20, Epoch: 7, Digest: "sha256:77"},
		}
		if diff := cmp.Diff(wantHeld, s.HeldKeys); diff != "" {
			t.Errorf("held: -want +got\n%s", diff)
		}
		escalation := func(id string) fedstatus.Escalation {
			return fedstatus.Escalation{
				At: at(10 * time.Second), Kind: "ambiguous", Peer: "fails", Capability: "risky", TaskID: id, CorrelationID: id,
				Outcome: "ambiguous", Reason: "no_signal", Delivery: "answered", Evidence: []string{}, Basis: "no_obligation",
				Attempts: 1, AnchorVersion: "1",
			}
		}
		if diff := cmp.Diff([]fedstatus.Escalation{escalation("c-2"), escalation("c-1")}, s.Escalations); diff != "" {
			t.Errorf("escalations: -want +got\n%s", diff)
		}
		denial := func(i int) fedstatus.Denial {
			return fedstatus.Denial{
				At: at(85 * time.Second), Until: at(85*time.Second - 15*time.Minute), Peer: "denies", Capability: fmt.Sprint("cap", i), Scope: "scope",
				TaskID: fmt.Sprint("d", i), Status: 403, PolicyReason: "NARROWED", Holds: true,
			}
		}
		if diff := cmp.Diff([]fedstatus.Denial{denial(2), denial(1), denial(0)}, s.Denials, cmpopts.IgnoreFields(fedstatus.Denial{}, "CorrelationID")); diff != "" {
			t.Errorf("denials: -want +got\n%s", diff)
		}
		for _, d := range s.Denials {
			if layer, known := r.peers["denies"].Author(d.CorrelationID); !known || layer != fedtest.LayerPolicy {
				t.Errorf("the correlation id %q is none of the peer's", d.CorrelationID)
			}
		}

		text := r.text()
		for _, want := range []string{
			"\n3 of 5 peers need attention: 1 breaker open, 1 denial budget spent, 1 with escalations (2, the last 10 s ago), 1 degraded, 1 anchor refresh failed.\n",
			"\n3 tasks held", "\n0 calls in flight", "\n2 escalations in the last hour", "\n3 denials",
			"\nnext trial in 50 s, ", "\n0 left in the budget", "\n1, fetched 1 min 25 s ago", "Last fetch failed: nobody answers\n",
			"\nsooner\n", "\n25 s\n", "\nepoch 7\nsha256:77\n", "\nc-1\n", "\nc-2\n", "\n10 s ago\n", "\nNARROWED\nstatus 403\n", "\nuntil in 13 min 35 s, ",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the page lacks %q", want)
			}
		}

		release()
		waiting.Wait()
		time.Sleep(15 * time.Minute)
		s = r.json(t)
		if s.Summary.Held != 0 || len(s.HeldKeys) != 0 || s.Denials[0].Holds {
			t.Errorf("in the end: %+v, %+v", s.Summary, s.Denials[0])
		}
	})
}

// TestInFlight: a call that has been sent is in flight.
func TestInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fedhttp.Config{}, "b")
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = r.call(ctx, "b", fedhttp.Task{ID: "hangs"}, fedtest.Hang())
		}()
		synctest.Wait()
		if s := r.json(t); s.Summary.InFlight != 1 || s.Peers[0].InFlight != 1 {
			t.Errorf("%+v", s.Summary)
		}
		end()
		<-done
	})
}

// TestSecrets puts a secret wherever a caller, a peer or an anchor source has
// one, and looks for it.
func TestSecrets(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fedhttp.Config{}, "denies", "fails", "drops", "parse", "fetch", "wrapped", "long")
		leaky := "https://user:" + secret + "@anchors.example/" + "anchor?token=" + secret + "#" + secret
		_, r.fails["parse"] = url.Parse(strings.Replace(leaky, "@", "\x7f@", 1))
		r.fails["fetch"] = &url.Error{Op: "Get", URL: leaky, Err: errors.New("connection refused")}
		r.fails["wrapped"] = fmt.Errorf("cannot fetch %s: %w", leaky, r.fails["fetch"])
		r.fails["long"] = errors.New(strings.Repeat("x", 240) + " " + leaky)

		dress := func(req *http.Request) {
			req.URL.User = url.UserPassword("user", secret)
			req.URL.RawQuery = "token=" + secret
			req.Header.Set("Authorization", "Bearer "+secret)
			req.Header.Set("Cookie", "session="+secret)
			req.Header.Set("X-Api-Key", secret)
			req.Body = io.NopCloser(strings.NewReader(secret))
		}
		undressed := http.Header{
			"Set-Cookie": {"session=" + secret}, "Www-Authenticate": {"Bearer " + secret}, "Location": {"https://h.example/?code=" + secret},
			"Authorization": {secret}, "Content-Type": {"application/problem+json"},
		}
		body := `{"detail": "` + secret + `"}`
		denied, failed := undressed.Clone(), undressed.Clone()
		denied.Set(fedtest.HeaderPolicyEvaluated, "true")
		denied.Set(fedtest.HeaderPolicyReason, "no access to "+leaky)
		failed.Set(fedtest.HeaderCorrelationID, "see "+leaky)
		task := fedhttp.Task{ID: "task", Capability: "cap", Scope: leaky}
		for peer, step := range map[string]fedtest.Step{
			"denies": fedtest.Raw(403, denied, body), "fails": fedtest.Raw(403, failed, body),
			"drops": fedtest.Wire("HTTP/1.1 " + secret + "\r\n\r\n"), "parse": nil, "fetch": nil, "wrapped": nil, "long": nil,
		} {
			err := r.call(t.Context(), peer, task, step, dress)
			if err != nil && peer != "drops" {
				t.Errorf("%s: %v", peer, err)
			}
		}
		s := r.json(t)
		if len(s.Denials) != 1 || len(s.Escalations) != 2 || s.Summary.Problems[fedstatus.ProblemAnchorRefreshFailed] != 4 {
			t.Errorf("there is not all that there should be: %+v", s)
		}
		for _, accept := range []string{"text/html", "application/json"} {
			page := r.get(accept)
			for _, line := range strings.FieldsFunc(page, func(r rune) bool { return r == '\n' || r == '{' }) {
				if strings.Contains(line, secret) || strings.Contains(line, "user:") {
					t.Errorf("%s: %s", accept, line)
				}
			}
			// What is left tells where it happened.
			if !strings.Contains(page, "https://anchors.example/anchor") {
				t.Errorf("%s lacks the URL that failed", accept)
			}
		}
	})
}

// TestConcurrent reads the page while everything that it shows changes.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	r := newRig(t, fedhttp.Config{}, "b", "c")
	if err := r.tr.SetPeers([]fedhttp.Peer{
		{ID: "b", Origins: []string{r.peers["b"].URL}, Breaker: fedhttp.BreakerPolicy{Failures: 1, OpenFor: time.Millisecond}},
		{ID: "c", Origins: []string{r.peers["c"].URL}, Denial: fedhttp.DenialPolicy{HoldOff: -1, Budget: 1000}},
	}); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(r.status)
	defer s.Close()
	ctx, end := context.WithCancel(t.Context())
	var callers, readers sync.WaitGroup
	for i := range 4 {
		callers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				task := fedhttp.Task{ID: fmt.Sprint(i, "-", n), Capability: fmt.Sprint("cap", n%5)}
				_ = r.call(ctx, "b", task, ambiguous(task.ID))
				_ = r.call(ctx, "c", task, fedtest.Deny("NARROWED"))
				r.tr.SetDegraded("c", n%2 == 0)
				held, cancel := context.WithTimeout(ctx, time.Millisecond)
				task.Obligations = fedhttp.Terms{"residency": "eu"}
				_ = r.call(held, "c", task, nil)
				cancel()
			}
		})
	}
	for _, accept := range []string{"text/html", "application/json"} {
		readers.Go(func() {
			for range 10 {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Accept", accept)
				resp, err := s.Client().Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				page, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != 200 || accept == "application/json" && !json.Valid(page) {
					t.Errorf("%s: %s, %v: %.200s", accept, resp.Status, err, page)
				}
			}
		})
	}
	readers.Wait()
	end()
	callers.Wait()
	if got := r.json(t); len(got.Escalations) == 0 || len(got.Denials) == 0 || got.Summary.Held != 0 {
		t.Errorf("in the end: %+v", got.Summary)
	}
}
