package fedhttp_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// deadAddress is a loopback address where nothing listens.
const deadAddress = "127.0.0.1:1"

const rowBody = "the whole body of the task"

// rowServer is the peer of one row: a real server on loopback, or where the row is
// about time in memory, and the base that reaches it. A connection serves one request,
// so that each attempt is one connection and net/http has none to send again on.
type rowServer struct {
	url     string
	base    *http.Transport
	connect func(ctx context.Context, network, address string) (net.Conn, error)
	peer    *fedtest.Peer // nil where no request can arrive
	arrived chan struct{} // closed when a request hangs

	mu      sync.Mutex
	answers []rowAnswer // one for each dial to come
}

func newRowServer(t *testing.T, row decisionRow) *rowServer {
	t.Helper()
	s := &rowServer{arrived: make(chan struct{}), base: &http.Transport{DisableKeepAlives: true}, connect: new(net.Dialer).DialContext}
	t.Cleanup(s.base.CloseIdleConnections)
	switch row.Server {
	case "access_denied":
		s.url = "https://" + alertServer(t, 49)
		s.base.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the handshake never gets to certificates
		return s
	case "untrusted_certificate":
		s.peer = fedtest.NewTLSPeer(fedtest.Config{ErrorLog: quietLog})
	case "client_certificate_required":
		s.peer = fedtest.NewTLSPeer(fedtest.Config{ErrorLog: quietLog, TLS: &tls.Config{ClientAuth: tls.RequireAnyClientCert}})
		s.base.TLSClientConfig = &tls.Config{RootCAs: s.peer.CertPool()}
	case "":
		s.peer = fedtest.NewUnstartedPeer(fedtest.Config{ErrorLog: quietLog})
		if row.virtual() {
			s.connect = s.peer.Transport().DialContext
		} else {
			s.peer.Start()
		}
	default:
		t.Fatalf("server %q is none", row.Server)
	}
	t.Cleanup(s.peer.Close)
	s.url = s.peer.URL
	s.peer.Otherwise(fedtest.Raw(599, nil, "this send is one too many"))
	s.base.DialContext = s.dial
	return s
}

// dial connects, or is refused, as the next answer says.
func (s *rowServer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	s.mu.Lock()
	if len(s.answers) > 0 {
		if s.answers[0].Do == "refuse" {
			address = deadAddress
		}
		s.answers = s.answers[1:]
	}
	s.mu.Unlock()
	return s.connect(ctx, network, address)
}

// expect sets what becomes of the next attempts.
func (s *rowServer) expect(t *testing.T, answers []rowAnswer) {
	t.Helper()
	s.mu.Lock()
	s.answers = append(s.answers, answers...)
	s.mu.Unlock()
	for _, a := range answers {
		switch a.Do {
		case "":
			s.peer.Script(fedtest.Raw(a.Status, headerOf(t, a.Headers), a.Body))
		case "close":
			s.peer.Script(fedtest.CloseConnection())
		case "hang":
			s.peer.Script(func(w http.ResponseWriter, r *http.Request) {
				close(s.arrived)
				fedtest.Hang()(w, r)
			})
		case "cut":
			s.peer.Script(fedtest.Wire("HTTP/1.1 200 OK\r\nContent-"))
		case "garbage":
			s.peer.Script(fedtest.Wire("SSH-2.0-OpenSSH_9.9\r\n\r\n"))
		case "refuse":
		default:
			t.Fatalf("answer %q is none", a.Do)
		}
	}
}

func (s *rowServer) log() []fedtest.Entry {
	if s.peer == nil {
		return nil
	}
	return s.peer.Routing.Log()
}

// alertServer answers each TLS handshake with an alert, and returns its address.
func alertServer(t *testing.T, code byte) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			// A fatal alert in clear text, as a server may send before the keys are agreed.
			header := make([]byte, 5)
			if _, err := io.ReadFull(conn, header); err == nil {
				_, _ = io.CopyN(io.Discard, conn, int64(header[3])<<8|int64(header[4]))
				_, _ = conn.Write([]byte{21, 3, 3, 0, 2, 2, code})
			}
			conn.Close()
		}
	})
	return l.Addr().String()
}

// rowPlay is a row in play.
type rowPlay struct {
	row         decisionRow
	server      *rowServer
	transport   *fedhttp.Transport
	book        fedhttp.PolicyBook
	escalations recorder[fedhttp.Escalation]
	toldBefore  int // escalations of the calls before
}

func newRowPlay(t *testing.T, row decisionRow) *rowPlay {
	t.Helper()
	play := &rowPlay{row: row, server: newRowServer(t, row)}
	p := row.Peer
	peer := fedhttp.Peer{
		ID: "b", Origins: []string{play.server.url},
		DefaultTerms: p.DefaultTerms, RequireTask: p.RequireTask, RequireAnchor: p.RequireAnchor, Receipt: p.Receipt,
		Signals: fedhttp.Signals{
			CorrelationPrefixes: p.Prefixes, FailureStatuses: p.FailureStatuses, ReadProblemDetail: p.ReadProblemDetail,
			PolicyEvaluated: p.EvaluatedHeader, CorrelationID: p.CorrelationHeader, PolicyReason: p.ReasonHeader, Receipt: p.ReceiptHeader,
		},
		Retry: fedhttp.RetryPolicy{
			MaxAttempts: p.MaxAttempts, MinBackoff: time.Microsecond, MaxBackoff: max(p.MaxBackoff.Duration, 5*time.Second),
			MinRefreshInterval: max(p.MinRefresh.Duration, time.Microsecond), AttemptTimeout: p.AttemptTimeout.Duration,
		},
		Breaker: fedhttp.BreakerPolicy{Failures: p.Failures, OpenFor: p.OpenFor.Duration},
		Hold:    fedhttp.HoldPolicy{Max: p.HoldMax, MaxWait: p.HoldMaxWait.Duration},
		Denial:  fedhttp.DenialPolicy{HoldOff: p.HoldOff.Duration, Budget: p.Budget},
	}
	if p.HoldMax == 0 && p.HoldMaxWait.Duration == 0 {
		peer.Hold.Max = -1 // a row that is not about holding does not wait
	}
	cfg := fedhttp.Config{
		Peers: []fedhttp.Peer{peer}, Base: play.server.base, Book: &play.book,
		Escalator: escalatorFunc(func(_ context.Context, e fedhttp.Escalation) { play.escalations.add(e) }),
		Logger:    quietLogger,
	}
	if row.Anchors != nil {
		var fetches atomic.Int64
		cfg.Anchors = anchorFunc(func(context.Context, string) (fedhttp.Anchor, error) {
			i := min(int(fetches.Add(1)), len(row.Anchors)) - 1
			return anchorOf(row.Anchors[i])
		})
	}
	if row.Resolver != "" {
		cfg.Correlation = resolverFunc(func(context.Context, string, string) (layer fedhttp.Layer, err error) {
			switch row.Resolver {
			case "error":
				return fedhttp.LayerRouting, errors.New("the resolver is down")
			case "panic":
				panic("the resolver is broken")
			}
			return layer, layer.UnmarshalText([]byte(row.Resolver))
		})
	}
	play.transport = newTestTransport(t, cfg)
	if p.Degraded {
		play.transport.SetDegraded("b", true)
	}
	return play
}

var errCallersCause = errors.New("the caller has changed its mind")

// call makes one call and returns what RoundTrip did.
func (play *rowPlay) call(t *testing.T, c rowCall) (*http.Response, error) {
	t.Helper()
	for _, change := range c.Book {
		change.apply(t, &play.book)
	}
	play.server.expect(t, c.Answers)
	ctx, cancel := context.WithCancelCause(context.Background())
	t.Cleanup(func() { cancel(nil) })
	if d := c.Request.Timeout.Duration; d > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, d)
		t.Cleanup(stop)
	}
	if c.Task != nil {
		task := fedhttp.Task{ID: "t1", Capability: c.Task.Capability, Scope: c.Task.Scope, Obligations: c.Task.Obligations}
		if d := c.Task.DeadlineIn.Duration; d != 0 {
			task.PolicyDeadline = time.Now().Add(d)
		}
		ctx = fedhttp.ContextWithTask(ctx, task)
	}
	switch c.Request.Cancel {
	case "before":
		cancel(errCallersCause)
	case "close_transport":
		if err := play.transport.Close(); err != nil {
			t.Error(err)
		}
	case "when_sent":
		go func() {
			<-play.server.arrived
			cancel(errCallersCause)
		}()
	}
	return play.transport.RoundTrip(c.newRequest(ctx, t, play.server.url))
}

func (c rowCall) newRequest(ctx context.Context, t *testing.T, url string) *http.Request {
	t.Helper()
	if c.Request.URL != "" {
		url = c.Request.URL
	}
	method, body := http.MethodGet, io.Reader(nil)
	if c.Request.Body != "" {
		method, body = http.MethodPost, strings.NewReader(rowBody)
	}
	if c.Request.Method != "" {
		method = c.Request.Method
	}
	req, err := http.NewRequestWithContext(ctx, method, url+"/v1/tasks", body)
	if err != nil {
		t.Fatal(err)
	}
	switch c.Request.Body {
	case "stream":
		req.GetBody = nil
	case "broken":
		req.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("the file is gone") }
	}
	for name, value := range c.Request.Header {
		req.Header.Set(name, value)
	}
	return req
}

func (b rowBook) apply(t *testing.T, book *fedhttp.PolicyBook) {
	t.Helper()
	if b.Capability == "" {
		b.Capability = "summarise"
	}
	if b.Epoch == 0 {
		b.Epoch = 1
	}
	if b.Digest == "" {
		b.Digest = "sha256:a"
	}
	key := fedhttp.PolicyKey{Peer: "b", Capability: b.Capability, Epoch: b.Epoch}
	switch b.Op {
	case "advertise":
		if err := book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: b.Digest}); err != nil {
			t.Fatal(err)
		}
	case "advertise_stale":
		if err := book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: b.Digest}); !errors.Is(err, fedhttp.ErrStaleEpoch) {
			t.Fatalf("Advertise: %v, want ErrStaleEpoch", err)
		}
	case "withdraw":
		book.Withdraw("b", b.Capability)
	case "accept":
		book.Accept(fedhttp.Policy{PolicyKey: key, Digest: b.Digest, Terms: b.Terms})
	case "revoke":
		book.Revoke(key, b.Digest)
	case "stale":
		book.SetStale(true)
	case "negotiate":
		book.CacheNegotiation(fedhttp.Negotiation{PolicyKey: key, Digest: b.Digest, Terms: b.Terms, ExpiresAt: time.Now().Add(b.ExpiresIn.Duration)})
	default:
		t.Fatalf("op %q is none", b.Op)
	}
}

// decisionOf holds RoundTrip to one of response and error, and returns the
// decision and the error that either carries.
func decisionOf(t *testing.T, resp *http.Response, err error) (fedhttp.Decision, error) {
	t.Helper()
	if (resp != nil) == (err != nil) {
		t.Fatalf("RoundTrip returned response %v and error %v; want one of them", resp, err)
	}
	if resp != nil {
		d, ok := fedhttp.DecisionFromResponse(resp)
		if !ok {
			t.Fatal("the response has no decision")
		}
		return d, d.Err()
	}
	var e *fedhttp.Error
	if !errors.As(err, &e) {
		t.Fatalf("%T is no *Error: %v", err, err)
	}
	return e.Decision, err
}

// evidenceOf returns the evidence as decisions.json spells it.
func evidenceOf(d fedhttp.Decision) []string {
	all := []string{}
	for _, e := range d.Evidence {
		all = append(all, e.String())
	}
	slices.Sort(all)
	return all
}
