// Package fedtest is a federation peer for tests, as net/http/httptest is a
// server for tests: a routing layer in front of a policy engine, each with a
// log and a ledger of what really reached it.
//
//	peer := fedtest.NewPeer(fedtest.Config{
//		QuarantineAt: 150,
//		Policy: func(r fedtest.Request) fedtest.Verdict {
//			if r.Header.Get("X-Scope") == "narrowed" {
//				return fedtest.Verdict{Deny: true, Reason: "SCOPE_NARROWED"}
//			}
//			return fedtest.Verdict{}
//		},
//	})
//	defer peer.Close()
//	// … send requests to peer.URL …
//	peer.Sends("task-7")          // how often task-7 reached the routing layer
//	peer.Engine.Ledger().Denials  // what the peer holds against its clients
//
// # The way of a request
//
// A request reaches the routing layer, which counts it, and takes the next
// [Step] of the script if there is one. Without one it compares the
// X-Federation-Anchor-Version header with its anchor. A stale version it
// answers itself, with 403, and the policy engine never sees the request. Any
// other request goes on to the policy engine, which counts it, looks up the
// policy that it runs under, asks [Config].Policy for a [Verdict], and then
// either refuses or runs [Config].Handler.
//
// Both layers sign their answers (X-Federation-Policy-Evaluated, an
// X-Correlation-ID with a prefix of the layer, and so on). Each [Signal] can
// be hidden, always or for one answer. With [SignalsTelling] hidden, a request
// that never arrived and a request that policy refused look the same: 403
// FederationDenied with a correlation id.
//
// # Which request is which
//
// A task is named by the X-Fedtest-Task header, else by the request's path; a
// client by X-Fedtest-Client, else it is [DefaultClient]; a capability by
// X-Fedtest-Capability, else by the first segment of the path. Each of the
// three can be replaced in [Config].
//
// # Scripts
//
// A [Step] is a plain handler function, so a test can write its own. Those of
// this package are [Pass], [Allow], [Deny], [Decide], [RouteStale],
// [RouteDrop], [Raw], [Wire], [CloseConnection], [Hang], [Drip] and [Endless];
// [Delay], [Hiding] and [Lose] change how others go:
//
//	peer.On("task-7", fedtest.RouteStale(), fedtest.Deny("SCOPE_NARROWED"))
//	peer.Script(fedtest.Lose(fedtest.Pass(), fedtest.CloseConnection()))
//
// # Hostile servers
//
// A [Peer] is well-behaved HTTP, whatever its script. [HostileServers] are not:
// raw HTTP/1 and HTTP/2 servers that reset, drip, lie, truncate, flood, never
// answer, or answer twice. Run a client against all of them:
//
//	for _, h := range fedtest.HostileServers() {
//		t.Run(h.Name, func(t *testing.T) {
//			fedtest.CheckLeaks(t)
//			s := h.Start() // or StartTLS
//			defer s.Close()
//			// … send a task to s.URL by s.Transport(), within bounds of time …
//			if n := s.Sends("task-7"); n > 1 && !h.SaysRouting {
//				t.Errorf("%s: sent %d times", h.Doc, n)
//			}
//		})
//	}
//
// # Sockets, memory and virtual time
//
// [NewPeer] listens on a loopback port. [NewUnstartedPeer] opens no socket:
// [Peer.Transport] reaches it in memory, over the same HTTP on pipes, and so
// works inside a testing/synctest bubble, with the bubble's clock. What is
// true of connections (events of httptrace, reuse, a response cut short) is
// true there too.
//
// # Safety
//
// All methods are safe for concurrent use, but for Start and StartTLS, which
// come before anything else. What the methods return is a copy that belongs
// to the caller. Peers keep everything they log until they are dropped; of a
// request body they keep its length and the hash of its first MiB.
package fedtest
