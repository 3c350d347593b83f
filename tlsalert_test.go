package fedhttp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

// The alerts that the tests speak of.
const (
	alertHandshakeFailure = 40
	alertBadCertificate   = 42
	alertExpired          = 45
	alertUnknownCA        = 48
	alertAccessDenied     = 49
	alertRequired         = 116
)

// certificateAlerts are those with which a peer refuses our certificate.
var certificateAlerts = []uint8{42, 43, 44, 45, 46, 48, 116}

// alertWatch is a Transport with its escalations.
type alertWatch struct {
	*fedhttp.Transport
	told *recorder[fedhttp.Escalation]
}

func watchAlerts(t *testing.T, base http.RoundTripper, url string) alertWatch {
	t.Helper()
	told := &recorder[fedhttp.Escalation]{}
	return alertWatch{newTestTransport(t, fedhttp.Config{
		Base: base, Anchors: fenceEager(), Peers: []fedhttp.Peer{testPeer("b", url)},
		Escalator: escalatorFunc(func(_ context.Context, e fedhttp.Escalation) { told.add(e) }),
	}), told}
}

// checkDistrusted checks that the call ended as one that the peer refused for
// our certificate.
func (w alertWatch) checkDistrusted(t *testing.T, err error) {
	t.Helper()
	d := fenceDecision(t, err)
	evidence := fedhttp.Evidence{Source: fedhttp.SourceTLSAlert, Layer: fedhttp.LayerRouting}
	if d.Outcome != fedhttp.OutcomeRoutingFailed || d.Reason != fedhttp.ReasonPeerDistrustsUs || d.Attempts != 1 ||
		d.Delivery != fedhttp.DeliveryNotDelivered || len(d.Evidence) != 1 || d.Evidence[0] != evidence || !d.Escalated {
		t.Errorf("got %+v, want peer_distrusts_us after one attempt: %v", d, err)
	}
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		t.Errorf("got %v, want the alert", err)
	}
	if told := w.told.wait(t, 1); told[0].Kind != fedhttp.EscalationPeerDistrustsUs {
		t.Errorf("escalated as %v", told[0].Kind)
	}
}

// TestTLSAlertRefused: peers of crypto/tls that refuse our certificate. They read
// on after the alert, so that it is never lost.
func TestTLSAlertRefused(t *testing.T) {
	stranger := newAuthority()
	valid := time.Now().Add(time.Hour)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, row := range []struct {
			name string
			cert *tls.Certificate
			code int
			want int // 0: the same
		}{
			{"unknown authority", new(stranger.issue(valid)), alertUnknownCA, 0},
			{"expired", new(fenceCA().issue(time.Now().Add(-time.Hour))), alertExpired, 0},
			{"not wanted", new(fenceCA().issue(valid)), alertBadCertificate, 0},
			{"none", nil, alertRequired, map[uint16]int{tls.VersionTLS12: alertHandshakeFailure}[version]},
		} {
			t.Run(fmt.Sprintf("%s/%s", tls.VersionName(version), row.name), func(t *testing.T) {
				checkLeaks(t)
				t.Parallel()
				config := serverTLS(true)
				config.MinVersion, config.MaxVersion = version, version
				config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, fenceCA().pool()
				if row.name == "not wanted" {
					config.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { return errors.New("not this one") }
				}
				var served atomic.Int64
				peer := listenRaw(t, nil, func(conn net.Conn) {
					secure := tls.Server(conn, config)
					if secure.Handshake() == nil {
						served.Add(1)
					}
					_, _ = io.Copy(io.Discard, conn)
				})
				url := strings.Replace(peer.url, "http:", "https:", 1)
				base := &http.Transport{TLSClientConfig: trusting()}
				if row.cert != nil {
					base.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
						return row.cert, nil // also where the peer's list of authorities does not have it
					}
				}
				w := watchAlerts(t, base, url)
				err := rawSend(w, requestOf(http.MethodPost, url))
				if row.want == alertHandshakeFailure {
					// TLS 1.2 has no word for it. No connection came: that is proven, and
					// sent again.
					if d := fenceDecision(t, err); d.Delivery != fedhttp.DeliveryNotDelivered || d.Attempts != 3 {
						t.Errorf("got %+v", d)
					}
				} else {
					w.checkDistrusted(t, err)
				}
				peer.drain(w)
				if served.Load() != 0 {
					t.Error("the handshake succeeded")
				}
			})
		}
	}
}

// TestTLSAlertHTTP2: on HTTP/2 net/http may find the connection dead before the
// request has got it, and say no more than that. Then it cannot be told.
func TestTLSAlertHTTP2(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	config := serverTLS(true, "h2")
	config.MinVersion = tls.VersionTLS13
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, fenceCA().pool()
	peer := listenRaw(t, nil, func(conn net.Conn) {
		if tls.Server(conn, config).Handshake() == nil {
			t.Error("the handshake succeeded")
		}
		_, _ = io.Copy(io.Discard, conn)
	})
	url := strings.Replace(peer.url, "http:", "https:", 1)
	stranger := newAuthority().issue(time.Now().Add(time.Hour))
	base := &http.Transport{TLSClientConfig: trusting(), ForceAttemptHTTP2: true}
	base.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &stranger, nil }
	known := 0
	const runs = 50
	for range runs {
		w := watchAlerts(t, base, url)
		err := rawSend(w, requestOf(http.MethodPost, url))
		if d := fenceDecision(t, err); d.Outcome == fedhttp.OutcomeAmbiguous {
			checkAmbiguous(t, err)
			continue
		}
		w.checkDistrusted(t, err)
		known++
	}
	t.Logf("%d of %d knew the alert", known, runs)
	if known == 0 {
		t.Error("the alert is never known")
	}
}

// TestTLSAlertInHandshake: every alert that refuses our certificate, and others,
// as the answer to our hello.
func TestTLSAlertInHandshake(t *testing.T) {
	for _, code := range append(certificateAlerts, alertHandshakeFailure, alertAccessDenied, 80, 112) {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			checkLeaks(t)
			t.Parallel()
			peer := listenRaw(t, nil, func(conn net.Conn) {
				if _, err := io.ReadFull(conn, make([]byte, 5)); err == nil {
					_, _ = conn.Write([]byte{21, 3, 3, 0, 2, 2, code}) // a record of one fatal alert
					_, _ = io.Copy(io.Discard, conn)
				}
			})
			url := strings.Replace(peer.url, "http:", "https:", 1)
			w := watchAlerts(t, &http.Transport{TLSClientConfig: trusting()}, url)
			err := rawGet(w, url)
			d := fenceDecision(t, err)
			switch code {
			case alertAccessDenied:
				checkAlertDenied(t, w, d)
			case alertHandshakeFailure, 80, 112:
				if d.Outcome != fedhttp.OutcomeRoutingFailed || d.Reason != fedhttp.ReasonAttemptsExhausted || d.Attempts != 3 ||
					d.Delivery != fedhttp.DeliveryNotDelivered {
					t.Errorf("got %+v, want three attempts that are proven undelivered", d)
				}
			default:
				w.checkDistrusted(t, err)
			}
		})
	}
}

// checkAlertDenied checks that the call ended as a rejection.
func checkAlertDenied(t *testing.T, w alertWatch, d fedhttp.Decision) {
	t.Helper()
	evidence := fedhttp.Evidence{Source: fedhttp.SourceTLSAlert, Layer: fedhttp.LayerPolicy}
	if d.Outcome != fedhttp.OutcomeRejected || d.Attempts != 1 || len(d.Evidence) != 1 || d.Evidence[0] != evidence || d.Escalated {
		t.Errorf("got %+v, want a rejection after one attempt", d)
	}
	if n := w.Status()[0].Denials; n != 1 {
		t.Errorf("%d denials recorded, want one", n)
	}
}

// remoteAlert is an alert as crypto/tls returns it, but for the name of its type.
type remoteAlert uint8

func (a remoteAlert) Error() string { return fmt.Sprintf("alert %d", uint8(a)) }

// tlsPair returns the client's end of a TLS connection in memory.
func tlsPair(t *testing.T, version uint16) *tls.Conn {
	t.Helper()
	here, there := net.Pipe()
	config := serverTLS(true)
	config.MaxVersion = version
	config.SessionTicketsDisabled = true // nobody reads them
	server := tls.Server(there, config)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Handshake()
	}()
	mine := trusting()
	mine.ServerName = "localhost"
	client := tls.Client(here, mine)
	if err := client.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-ended
	t.Cleanup(func() {
		here.Close()
		there.Close()
	})
	return client
}

// TestTLSAlertAfterHandshake: with TLS 1.3 the alert comes when the connection
// has long been had. What it proves depends on which connection that was.
func TestTLSAlertAfterHandshake(t *testing.T) {
	const distrusted, denied, inDoubt = "distrusted", "denied", "in doubt"
	for _, row := range []struct {
		name    string
		version uint16 // 0: no connection
		reused  bool
		hidden  bool // the base reports no events
		other   map[uint8]string
		want    string
	}{
		{"TLS 1.3", tls.VersionTLS13, false, false, map[uint8]string{alertAccessDenied: denied}, distrusted},
		{"no connection", 0, false, false, map[uint8]string{alertAccessDenied: denied}, distrusted},
		{"TLS 1.3, reused", tls.VersionTLS13, true, false, nil, inDoubt},
		// A TLS 1.2 handshake ends after our certificate was judged. What comes
		// later comes after the peer has read the header.
		{"TLS 1.2", tls.VersionTLS12, false, false, map[uint8]string{alertAccessDenied: denied}, inDoubt},
		{"an opaque base", 0, false, true, map[uint8]string{alertAccessDenied: denied}, inDoubt},
	} {
		for _, code := range append(certificateAlerts, alertAccessDenied, 80) {
			t.Run(fmt.Sprintf("%s/%d", row.name, code), func(t *testing.T) {
				checkLeaks(t)
				t.Parallel()
				if code == 80 && row.version == 0 {
					return // tested with a real handshake
				}
				w := watchAlerts(t, roundTripFunc(func(req *http.Request) (*http.Response, error) {
					if !row.hidden {
						trace := httptrace.ContextClientTrace(req.Context())
						trace.GetConn("b")
						if row.version != 0 {
							trace.GotConn(httptrace.GotConnInfo{Conn: tlsPair(t, row.version), Reused: row.reused})
						}
					}
					return nil, &net.OpError{Op: "remote error", Err: remoteAlert(code)}
				}), "https://127.0.0.1:1")
				err := rawGet(w, "https://127.0.0.1:1/")
				want := row.want
				if code == 80 {
					want = inDoubt
				}
				if other, ok := row.other[code]; ok {
					want = other
				}
				switch want {
				case distrusted:
					w.checkDistrusted(t, err)
				case denied:
					checkAlertDenied(t, w, fenceDecision(t, err))
				default:
					checkAmbiguous(t, err)
				}
			})
		}
	}
}

// TestTLSAlertLost: a peer that ends the connection right after its alert. While
// we are writing a large body, the alert may be lost to the end of the
// connection. Then it cannot be told, and is not sent again.
func TestTLSAlertLost(t *testing.T) {
	checkLeaks(t)
	const runs = 300
	config := serverTLS(true)
	config.MinVersion = tls.VersionTLS13
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, fenceCA().pool()
	var served atomic.Int64
	peer := listenRaw(t, config, func(net.Conn) { served.Add(1) })
	stranger := newAuthority().issue(time.Now().Add(time.Hour))
	base := &http.Transport{TLSClientConfig: trusting()}
	base.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &stranger, nil }
	cfg := testPeer("b", peer.url)
	cfg.Breaker = fedhttp.BreakerPolicy{Failures: -1}
	tr := newTestTransport(t, fedhttp.Config{Base: base, Anchors: fenceEager(), Escalator: fenceQuiet, Peers: []fedhttp.Peer{cfg}})

	var known, lost atomic.Int64
	var workers sync.WaitGroup
	body := strings.Repeat("x", 200<<10)
	for range 4 {
		workers.Go(func() {
			for range runs / 4 {
				req, err := http.NewRequest(http.MethodPost, peer.url+"/task", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				// A handshake that fails is proof, and may be tried again. Once a
				// connection was had, nothing may.
				var had atomic.Int64
				err = rawSend(tr, req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
					GotConn: func(httptrace.GotConnInfo) { had.Add(1) },
				})))
				var failed *fedhttp.Error
				if !errors.As(err, &failed) {
					t.Errorf("got %v", err)
					return
				}
				switch d := failed.Decision; {
				case had.Load() > 1:
					t.Errorf("sent %d times: %v", had.Load(), err)
				case d.Reason == fedhttp.ReasonPeerDistrustsUs && d.Delivery == fedhttp.DeliveryNotDelivered:
					known.Add(1)
				case d.Outcome == fedhttp.OutcomeAmbiguous && d.Delivery == fedhttp.DeliveryPossible:
					lost.Add(1)
				default:
					t.Errorf("got %+v: %v", d, err)
				}
			}
		})
	}
	workers.Wait()
	peer.drain(tr)
	t.Logf("%d of %d knew the alert, %d lost it; %d handlers ran, over %d connections",
		known.Load(), runs, lost.Load(), served.Load(), peer.accepted.Load())
	if served.Load() != 0 || known.Load()+lost.Load() != runs {
		t.Errorf("%d handlers ran, %d calls ended as they should, want none and %d", served.Load(), known.Load()+lost.Load(), runs)
	}
}
