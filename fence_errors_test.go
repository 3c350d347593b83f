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
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp"
)

// isA returns a check that errors.As finds an E.
func isA[E error]() func(error) bool {
	return func(err error) bool {
		var found E
		return errors.As(err, &found)
	}
}

func isErr(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// TestFenceErrorKinds: the errors of connections that never came keep their kind,
// and say nothing of the URL's secrets, also through an http.Client.
func TestFenceErrorKinds(t *testing.T) {
	failing := func(err error) *http.Transport {
		return &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, err }}
	}
	peer := listenRaw(t, serverTLS(true), answerWhole)
	gone := listenRaw(t, nil, answerWhole)
	gone.close()
	otherName := trusting()
	otherName.ServerName = "other.example"
	for name, row := range map[string]struct {
		url    string
		base   *http.Transport
		checks []func(error) bool
	}{
		"refused": {
			gone.url, &http.Transport{},
			[]func(error) bool{isErr(syscall.ECONNREFUSED), isA[*net.OpError]()},
		},
		"no such name": {
			"http://localhost:1", failing(&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}),
			[]func(error) bool{isA[*net.DNSError](), isA[*net.OpError]()},
		},
		"dial timeout": {
			"http://localhost:1", failing(&net.OpError{Op: "dial", Err: context.DeadlineExceeded}),
			[]func(error) bool{isErr(context.DeadlineExceeded), isA[*net.OpError]()},
		},
		"unknown authority": {
			peer.url, &http.Transport{TLSClientConfig: &tls.Config{RootCAs: x509.NewCertPool()}},
			[]func(error) bool{isA[x509.UnknownAuthorityError](), isA[*tls.CertificateVerificationError]()},
		},
		"another name": {
			peer.url, &http.Transport{TLSClientConfig: otherName},
			[]func(error) bool{isA[x509.HostnameError]()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			tr := fenced(t, row.base, row.url)
			client := &http.Client{Transport: tr}
			_, err := client.Get(strings.Replace(row.url, "://", "://user:secret@", 1) + "/task")
			d := fenceDecision(t, err)
			if d.Delivery != fedhttp.DeliveryNotDelivered || d.Attempts != 3 || d.Outcome != fedhttp.OutcomeRoutingFailed {
				t.Errorf("got %+v, want three attempts that are proven undelivered", d)
			}
			for i, is := range row.checks {
				if !is(err) {
					t.Errorf("check %d: the kind is lost: %v", i, err)
				}
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error has a secret: %v", err)
			}
		})
	}
}

// TestFenceContext: a call that its caller ends is over with the context's error
// and its cause, and says what may have left by then.
func TestFenceContext(t *testing.T) {
	for _, dialing := range []bool{true, false} {
		for _, deadline := range []bool{true, false} {
			t.Run(fmt.Sprintf("dialing=%v/deadline=%v", dialing, deadline), func(t *testing.T) {
				checkLeaks(t)
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { fenceContext(t, dialing, deadline) })
			})
		}
	}
}

// fenceContext is in virtual time, in which no deadline passes before the request is
// on its way.
func fenceContext(t *testing.T, dialing, deadline bool) {
	errLeft := errors.New("the user has left")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	if deadline {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, 50*time.Millisecond, errLeft)
		defer stop()
	}
	busy := make(chan struct{}, 1)
	base := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		if dialing {
			busy <- struct{}{}
			<-ctx.Done() // net/http's dialing outlives the call
			return nil, errors.New("too late")
		}
		ours, theirs := net.Pipe()
		go func() {
			if n, _ := theirs.Read(make([]byte, 1)); n > 0 {
				busy <- struct{}{}
			}
			_, _ = io.Copy(io.Discard, theirs)
		}()
		return ours, nil
	}}
	const url = "http://127.0.0.1:1"
	tr := fenced(t, base, url)
	failed := make(chan error, 1)
	go func() { failed <- rawSend(tr, requestOf(http.MethodGet, url).WithContext(ctx)) }()
	<-busy
	if !deadline {
		cancel(errLeft)
	}
	err := <-failed
	d := fenceDecision(t, err)
	want := map[bool]fedhttp.Delivery{true: fedhttp.DeliveryNotDelivered, false: fedhttp.DeliveryPossible}[dialing]
	if d.Delivery != want || d.Attempts != 1 {
		t.Errorf("got %+v, want one attempt, %v", d, want)
	}
	kind := map[bool]error{true: context.DeadlineExceeded, false: context.Canceled}[deadline]
	if !errors.Is(err, kind) || !errors.Is(err, errLeft) {
		t.Errorf("got %v, want %v and its cause", err, kind)
	}
	var timeout interface{ Timeout() bool }
	if !errors.As(err, &timeout) || timeout.Timeout() != deadline {
		t.Errorf("got %v, Timeout is not %v", err, deadline)
	}
	outcome := fedhttp.OutcomeCanceled
	switch {
	case deadline && dialing:
		outcome = fedhttp.OutcomeRoutingFailed
	case deadline:
		outcome = fedhttp.OutcomeAmbiguous
	}
	if d.Outcome != outcome {
		t.Errorf("got %v, want %v", d.Outcome, outcome)
	}
}
