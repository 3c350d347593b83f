package realtest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

const (
	capturesDir = "../testdata/captures"
	good        = "delivered"
	ambiguous   = "ambiguous/no_signal"
	distrusted  = "routing_failed/peer_distrusts_us"
)

// situation is one in which a server answers.
type situation struct {
	name   string // with the server's, that of the capture
	path   string // "": the name
	url    string // where it is not the server's
	host   string // for the Host field; "": the URL's
	client *tls.Certificate
	sends  int  // how often it is sent; 0: once
	app    int  // how many requests the application gets to see
	limit  bool // one request before this one is within the limit
	// want is what it comes to; none: what the capture comes to. Several: where
	// the TLS alert of a server can be lost, as its reset overtakes it.
	want []string
}

// verdict is a row of the captures' table.
type verdict struct {
	Want, Pinned string
}

func readVerdicts(t *testing.T) map[string]verdict {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(capturesDir, "verdicts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]verdict
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// recorded is one capture: its status, 0 where it has no byte.
func recorded(t *testing.T, name string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(capturesDir, name+".http"))
	if err != nil {
		t.Fatal(err)
	}
	if len(data) == 0 {
		return 0
	}
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(data)), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// site is a server in its place: between a transport and the application.
type site struct {
	server string // "nginx"
	prefix string // of the paths
	url    string
	app    *app
	trust  *trust
	book   *fedhttp.PolicyBook
	peer   func(*fedhttp.Peer)
	// gateway, where there is one, plays the situations once more for curl and
	// for Python.
	gateway *gateway
}

func (s *site) origin(at situation) string {
	if at.url != "" {
		return at.url
	}
	return s.url
}

func (s *site) path(at situation) string {
	if at.path != "" {
		return at.path
	}
	return s.prefix + "/" + at.name
}

// play puts the server into each situation, once with no dialect, and once with
// every dialect pinned.
func (s *site) play(t *testing.T, situations []situation) {
	t.Helper()
	verdicts := readVerdicts(t)
	for _, at := range situations {
		t.Run(at.name, func(t *testing.T) {
			t.Parallel()
			name := s.server + "-" + at.name
			row, known := verdicts[name]
			plain, pinned, status := at.want, at.want, -1
			if known {
				status = recorded(t, name)
			}
			switch {
			case at.want != nil:
				status = -1
			case !known:
				t.Fatalf("%s is no capture, and the situation does not say what it comes to", name)
			default:
				plain, pinned = []string{row.Want}, []string{row.Want}
				if row.Pinned != "" {
					pinned = []string{row.Pinned}
				}
			}
			if at.limit {
				if got := s.call(t, at, nil, name+"-first"); got.what != good {
					t.Fatalf("before the limit: %s", got.what)
				}
			}
			wants := map[string][]string{"plain": plain, "pinned": pinned}
			if s.gateway.serves(s, at) {
				wants["curl"], wants["python3"] = pinned, pinned
			}
			for mode, want := range wants {
				task := name + "-" + mode
				var got result
				switch mode {
				case "plain":
					got = s.call(t, at, nil, task)
				case "pinned":
					got = s.call(t, at, everyDialect(), task)
				default:
					got = s.gateway.call(t, s, at, mode, task)
				}
				if !slices.Contains(want, got.what) {
					t.Errorf("%s: %s, want %s (status %d, %v, %v)", mode, got.what, strings.Join(want, " or "), got.status, got.decision.Evidence, got.err)
				}
				// Of no answer the gateway makes one of its own.
				if status >= 0 && got.status != status && (status > 0 || got.err != nil) {
					t.Errorf("%s: status %d, recorded was %d", mode, got.status, status)
				}
				if n := s.app.had(task); n != at.app {
					t.Errorf("%s: the application has had the request %d times, want %d", mode, n, at.app)
				}
				if n := got.decision.Attempts; n != max(1, at.sends) {
					t.Errorf("%s: sent %d times", mode, n)
				}
			}
		})
	}
}

// result is what a call came to.
type result struct {
	what     string // outcome/reason
	status   int    // 0: no response
	decision fedhttp.Decision
	err      error
}

// call sends one request through a transport that would gladly send again: there
// is always a newer anchor, and the body can be read anew.
func (s *site) call(t *testing.T, at situation, dialects []fedhttp.Dialect, task string) result {
	t.Helper()
	url := s.origin(at)
	peer := fedhttp.Peer{ID: s.server, Origins: []string{url}}
	peer.Signals.Dialects = dialects
	peer.Retry.MinBackoff, peer.Retry.MinRefreshInterval = time.Millisecond, time.Millisecond
	if s.peer != nil {
		s.peer(&peer)
	}
	config := &tls.Config{RootCAs: s.trust.roots}
	if at.client != nil {
		// Also where the server's list of authorities has none of it.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return at.client, nil }
	}
	base := &http.Transport{TLSClientConfig: config}
	tr, err := fedhttp.NewTransport(fedhttp.Config{
		Base: base, Anchors: newerAnchors(), Escalator: quiet{}, Book: s.book, Peers: []fedhttp.Peer{peer},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer base.CloseIdleConnections()
	defer tr.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+s.path(at), strings.NewReader("a task"))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = at.host
	req.Header.Set(headerTask, task)
	resp, err := tr.RoundTrip(req)
	r := result{err: err}
	var failed *fedhttp.Error
	switch {
	case err == nil:
		r.status = resp.StatusCode
		r.decision, _ = fedhttp.DecisionFromResponse(resp)
		_, _ = io.Copy(io.Discard, resp.Body) // one breaks off
		resp.Body.Close()
	case errors.As(err, &failed):
		r.decision = failed.Decision
	default:
		t.Fatalf("an error of another kind: %v", err)
	}
	r.what = r.decision.Outcome.String()
	if r.decision.Reason != fedhttp.ReasonNone {
		r.what += "/" + r.decision.Reason.String()
	}
	return r
}

// everyDialect is every vocabulary, and the hop that speaks it is believed.
func everyDialect() (all []fedhttp.Dialect) {
	for kind := fedhttp.DialectProxyStatus; ; kind++ {
		if _, err := kind.MarshalText(); err != nil {
			return all
		}
		all = append(all, fedhttp.Dialect{Kind: kind, Hops: []fedhttp.Hop{{Name: "front"}}})
	}
}

type anchors struct{ n atomic.Int64 }

// newerAnchors is a source in which each anchor is newer than the one before.
func newerAnchors() *anchors { return &anchors{} }

func (a *anchors) FetchAnchor(context.Context, string) (fedhttp.Anchor, error) {
	return fedhttp.Anchor{Version: strconv.FormatInt(a.n.Add(1), 10)}, nil
}

// quiet is a sink for escalations that nobody looks at.
type quiet struct{}

func (quiet) Escalate(context.Context, fedhttp.Escalation) {}
