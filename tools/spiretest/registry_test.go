package spiretest

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// registry is a server of a peer. It speaks with one client only, known by its
// X.509-SVID, and counts what it is given.
type registry struct {
	url  string
	errs logBuffer // what its handshakes came to

	mu        sync.Mutex
	delivered map[string]int // times by task
}

func newRegistry(t *testing.T, identity x509svid.Source, trust x509bundle.Source, client spiffeid.ID) *registry {
	t.Helper()
	r := &registry{delivered: map[string]int{}}
	l, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	r.url = "https://" + l.Addr().String()
	server := &http.Server{
		Handler:   r,
		TLSConfig: tlsconfig.MTLSServerConfig(identity, trust, tlsconfig.AuthorizeID(client)),
		ErrorLog:  log.New(&r.errs, "", 0),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.ServeTLS(l, "", "") // ErrServerClosed
	}()
	t.Cleanup(func() {
		server.Close()
		<-served
	})
	return r
}

// ServeHTTP takes the task that the path names.
func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(io.LimitReader(req.Body, 1<<10))
	task := strings.TrimPrefix(req.URL.Path, "/tasks/")
	if err != nil || string(body) != task {
		http.Error(w, "not the task that it says", http.StatusUnprocessableEntity)
		return
	}
	r.mu.Lock()
	r.delivered[task]++
	r.mu.Unlock()
	fmt.Fprintln(w, "done")
}

// count returns how often the task was delivered.
func (r *registry) count(task string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.delivered[task]
}

// total returns how many tasks were delivered, and how many deliveries there were.
func (r *registry) total() (given, deliveries int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, times := range r.delivered {
		deliveries += times
	}
	return len(r.delivered), deliveries
}

// refused counts the handshakes in which a client has refused our certificate.
func (r *registry) refused() int {
	return strings.Count(r.errs.String(), "remote error: tls: bad certificate")
}

// signer is the authority that has signed what identity has now: the key ID
// that SPIRE calls its authority ID.
func signer(identity x509svid.Source) (string, error) {
	svid, err := identity.GetX509SVID()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", svid.Certificates[0].AuthorityKeyId), nil
}

// awaitSigner returns once identity has a certificate of the authority.
func awaitSigner(ctx context.Context, t *testing.T, identity x509svid.Source, authority string) {
	t.Helper()
	eventually(ctx, t, "an SVID of the authority "+authority, func() error {
		switch got, err := signer(identity); {
		case err != nil:
			return err
		case got != authority:
			return fmt.Errorf("it is of %s", got)
		}
		return nil
	})
}

// awaitAuthorities returns once the trust domain's bundle is of these authorities.
func awaitAuthorities(ctx context.Context, t *testing.T, bundles x509bundle.Source, of spiffeid.TrustDomain, want ...string) {
	t.Helper()
	eventually(ctx, t, fmt.Sprintf("a bundle of %v", want), func() error {
		got, err := authorities(bundles, of)
		if err != nil {
			return err
		}
		if !sameSet(got, want) {
			return fmt.Errorf("it is of %v", got)
		}
		return nil
	})
}
