package fedhttp_test

import (
	"crypto/tls"
	"encoding/pem"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fedhttp/fedhttp"
)

// negotiatedBases are bases that differ in what decides whether net/http speaks
// HTTP/2.
func negotiatedBases() map[string]func() *http.Transport {
	configs := map[string]func(*http.Transport){
		"": nil, "tls": func(b *http.Transport) { b.TLSClientConfig = trusting() },
		"tls with h2": func(b *http.Transport) {
			b.TLSClientConfig = trusting()
			b.TLSClientConfig.NextProtos = []string{"h2", "http/1.1"}
		},
	}
	tlsDialer := &tls.Dialer{Config: &tls.Config{RootCAs: fenceCA().pool(), NextProtos: []string{"h2", "http/1.1"}}}
	dialers := map[string]func(*http.Transport){
		"":               nil,
		"DialContext":    func(b *http.Transport) { b.DialContext = new(net.Dialer).DialContext },
		"Dial":           func(b *http.Transport) { b.Dial = net.Dial }, //nolint:staticcheck // it is still honoured
		"DialTLSContext": func(b *http.Transport) { b.DialTLSContext = tlsDialer.DialContext },
		"DialTLS":        func(b *http.Transport) { b.DialTLS = tlsDialer.Dial }, //nolint:staticcheck // it is still honoured
	}
	protocols := func(http1, http2 bool) func(*http.Transport) {
		return func(b *http.Transport) {
			b.Protocols = new(http.Protocols)
			b.Protocols.SetHTTP1(http1)
			b.Protocols.SetHTTP2(http2)
		}
	}
	choices := map[string]func(*http.Transport){
		"":                   nil,
		"force":              func(b *http.Transport) { b.ForceAttemptHTTP2 = true },
		"no TLSNextProto":    func(b *http.Transport) { b.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{} },
		"protocols h1":       protocols(true, false),
		"protocols h2":       protocols(false, true),
		"protocols h1 h2":    protocols(true, true),
		"force, protocol h1": func(b *http.Transport) { b.ForceAttemptHTTP2 = true; protocols(true, false)(b) },
	}
	bases := make(map[string]func() *http.Transport)
	for config, setConfig := range configs {
		for dialer, setDialer := range dialers {
			for choice, setChoice := range choices {
				bases[strings.Join([]string{config, dialer, choice}, "|")] = func() *http.Transport {
					b := &http.Transport{}
					for _, set := range []func(*http.Transport){setConfig, setDialer, setChoice} {
						if set != nil {
							set(b)
						}
					}
					return b
				}
			}
		}
	}
	return bases
}

const negotiationChild = "FEDHTTP_FENCE_NEGOTIATION"

// TestBaseNegotiation: HTTP/2 is spoken exactly where the base by itself would
// speak it. It runs in a process of its own, whose system trusts the test's
// authority: a base that has no TLS configuration trusts nothing else.
func TestBaseNegotiation(t *testing.T) {
	if os.Getenv(negotiationChild) != "" {
		negotiate(t)
		return
	}
	checkLeaks(t)
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the roots of the system cannot be chosen here")
	}
	roots := filepath.Join(t.TempDir(), "roots.pem")
	for _, debug := range []string{"", "http2client=0"} {
		child := exec.Command(os.Args[0], "-test.run=^TestBaseNegotiation$", "-test.v")
		child.Env = append(os.Environ(), "SSL_CERT_FILE="+roots, "SSL_CERT_DIR="+roots, "GODEBUG="+debug, negotiationChild+"="+roots)
		out, err := child.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestBaseNegotiation") {
			t.Errorf("GODEBUG=%s: %v\n%s", debug, err, out)
		}
	}
}

func negotiate(t *testing.T) {
	// The system's roots are read when they are first needed.
	roots := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: fenceCA().cert.Raw})
	if err := os.WriteFile(os.Getenv(negotiationChild), roots, 0o600); err != nil {
		t.Fatal(err)
	}
	url := httptestHTTP2(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	spoken := func(rt idleRoundTripper) string {
		defer rt.CloseIdleConnections()
		resp, err := rt.RoundTrip(requestOf(http.MethodGet, url))
		if err != nil {
			return "an error"
		}
		resp.Body.Close()
		return resp.Proto
	}
	seen := make(map[string]int)
	for name, base := range negotiatedBases() {
		want := spoken(base())
		seen[want]++
		for _, used := range []bool{false, true} {
			own := base()
			if used && spoken(own) != want {
				t.Errorf("%s: net/http speaks now this and now that", name)
			}
			tr, err := fedhttp.NewTransport(fedhttp.Config{Base: own, Escalator: fenceQuiet, Peers: []fedhttp.Peer{testPeer("b", url)}})
			if err != nil {
				t.Fatal(err)
			}
			if got := spoken(tr); got != want {
				t.Errorf("%s, used before: %v: %s, want %s", name, used, got, want)
			}
			tr.Close()
			if got := spoken(own); got != want {
				t.Errorf("%s, used before: %v: the base itself speaks %s now, want %s", name, used, got, want)
			}
		}
	}
	t.Log(seen)
	if os.Getenv("GODEBUG") == "" && (seen["HTTP/1.1"] == 0 || seen["HTTP/2.0"] == 0) {
		t.Errorf("%v: not both were spoken", seen)
	}
}
