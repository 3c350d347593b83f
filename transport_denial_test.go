package fedhttp_test

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp"
)

// How long a denial covers what comes later, in virtual time.

// denying counts the sends and denies them with the status.
func denying(sends *atomic.Int64, status int, header ...string) roundTripFunc {
	return func(r *http.Request) (*http.Response, error) {
		sends.Add(1)
		return answering(response(status, append([]string{"X-Federation-Policy-Evaluated", "true"}, header...)...))(r)
	}
}

func TestHoldOff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		header []string
		policy fedhttp.DenialPolicy
		want   time.Duration
	}{
		"by default":                           {403, nil, fedhttp.DenialPolicy{}, 15 * time.Minute},
		"as configured":                        {403, nil, fedhttp.DenialPolicy{HoldOff: time.Hour}, time.Hour},
		"429 without Retry-After":              {429, nil, fedhttp.DenialPolicy{}, 15 * time.Minute},
		"429 with a shorter Retry-After":       {429, []string{"Retry-After", "30"}, fedhttp.DenialPolicy{}, 30 * time.Second},
		"429 with a longer Retry-After":        {429, []string{"Retry-After", "3600"}, fedhttp.DenialPolicy{}, 15 * time.Minute},
		"429 with a Retry-After of no sense":   {429, []string{"Retry-After", "-5"}, fedhttp.DenialPolicy{}, 15 * time.Minute},
		"403 with a Retry-After of no meaning": {403, []string{"Retry-After", "30"}, fedhttp.DenialPolicy{}, 15 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var sends atomic.Int64
				p := testPeer("b", stubURL)
				p.Denial = test.policy
				tr := newTestTransport(t, fedhttp.Config{Base: denying(&sends, test.status, test.header...), Peers: []fedhttp.Peer{p}})
				ask := func(want int64) {
					t.Helper()
					d, err := get(t, tr, *plainTask)
					if n := sends.Load(); n != want {
						t.Errorf("%d sends after %v (%v), want %d", n, d.Outcome, err, want)
					}
				}
				ask(1)
				time.Sleep(test.want - time.Nanosecond)
				ask(1) // still held off
				time.Sleep(time.Nanosecond)
				ask(2) // expiry is exclusive
				ask(2)
			})
		})
	}
}

func TestDenialBudgetWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sends atomic.Int64
		p := testPeer("b", stubURL)
		p.Denial = fedhttp.DenialPolicy{HoldOff: -1, Budget: 3, Window: time.Hour}
		tr := newTestTransport(t, fedhttp.Config{Base: denying(&sends, 403), Peers: []fedhttp.Peer{p}})
		for i := range 3 {
			if d, _ := get(t, tr, *plainTask); d.Outcome != fedhttp.OutcomeRejected {
				t.Fatalf("denial %d: %v", i, d.Outcome)
			}
			time.Sleep(10 * time.Minute)
		}
		d, err := get(t, tr, fedhttp.Task{Capability: "another"})
		if d.Reason != fedhttp.ReasonDenialBudget || !errors.Is(err, fedhttp.ErrScopeDenied) || sends.Load() != 3 {
			t.Errorf("%v, %v, %d sends; want denial_budget and 3", d.Reason, err, sends.Load())
		}
		time.Sleep(30 * time.Minute) // the first denial leaves the window
		if d, _ := get(t, tr, *plainTask); d.Outcome != fedhttp.OutcomeRejected || sends.Load() != 4 {
			t.Errorf("%v after %d sends, want it sent once more", d.Outcome, sends.Load())
		}
		if d, _ := get(t, tr, *plainTask); d.Reason != fedhttp.ReasonDenialBudget || sends.Load() != 4 {
			t.Errorf("%v after %d sends, want denial_budget", d.Reason, sends.Load())
		}
		p.Denial.Budget = 4
		if err := tr.SetPeers([]fedhttp.Peer{p}); err != nil {
			t.Fatal(err)
		}
		if d, _ := get(t, tr, *plainTask); d.Outcome != fedhttp.OutcomeRejected {
			t.Errorf("%v under a greater budget, want it sent", d.Outcome)
		}
		p.Denial.Budget = 1
		if err := tr.SetPeers([]fedhttp.Peer{p}); err != nil {
			t.Fatal(err)
		}
		if d, _ := get(t, tr, *plainTask); d.Reason != fedhttp.ReasonDenialBudget {
			t.Errorf("%v under a smaller budget, want denial_budget", d.Outcome)
		}
	})
}

func TestForget(t *testing.T) {
	t.Parallel()
	var sends atomic.Int64
	ledger := fedhttp.NewDenialLedger()
	tr := newTestTransport(t, fedhttp.Config{Base: denying(&sends, 403), Denials: ledger, Peers: []fedhttp.Peer{testPeer("b", stubURL)}})
	tasks := []fedhttp.Task{{Capability: "x", Scope: "1"}, {Capability: "x", Scope: "2"}, {Capability: "y"}}
	sentAgain := func(want ...bool) {
		t.Helper()
		for i, task := range tasks {
			before := sends.Load()
			_, _ = get(t, tr, task)
			if sent := sends.Load() > before; sent != want[i] {
				t.Errorf("task %+v was sent: %v, want %v", task, sent, want[i])
			}
		}
	}
	sentAgain(true, true, true)
	sentAgain(false, false, false)
	ledger.Forget("another", "")
	ledger.Forget("b", "z")
	sentAgain(false, false, false)
	ledger.Forget("b", "x")
	sentAgain(true, true, false)
	ledger.Forget("b", "")
	sentAgain(true, true, true)
	if n := tr.Status()[0].Denials; n != 8 {
		t.Errorf("%d denials are counted, want 8", n)
	}
}

// TestLedgerStaysRight: what is swept away with expired denials is only those.
func TestLedgerStaysRight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ledger := fedhttp.NewDenialLedger()
		record := func(scope string, hold time.Duration) {
			d := fedhttp.Denial{Peer: "b", Capability: "c", Scope: scope, Epoch: 1, Digest: "d", At: time.Now(), Until: time.Now().Add(hold)}
			if err := ledger.Record(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
		auth := fedhttp.Authorization{Epoch: 1, Digest: "d"}
		denied := func(scope string, a fedhttp.Authorization) bool {
			_, ok := ledger.Denied("b", fedhttp.Task{Capability: "c", Scope: scope}, a)
			return ok
		}
		record("lasting", time.Hour)
		for i := range 5000 {
			record(string(rune('a'+i%26))+time.Duration(i).String(), time.Second)
			time.Sleep(time.Millisecond)
		}
		if !denied("lasting", auth) || denied("lasting", fedhttp.Authorization{Epoch: 2, Digest: "d"}) || denied("lasting", fedhttp.Authorization{Epoch: 1, Digest: "e"}) {
			t.Error("a lasting denial is lost, or covers another epoch or digest")
		}
		if denied("a0s", auth) {
			t.Error("an expired denial covers a task")
		}
		if _, ok := ledger.Denied("other", fedhttp.Task{Capability: "c", Scope: "lasting"}, auth); ok {
			t.Error("a denial covers another peer")
		}
	})
}
