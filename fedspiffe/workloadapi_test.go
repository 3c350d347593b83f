package fedspiffe_test

import (
	"context"
	"crypto/x509"
	"net"
	"sync"
	"testing"
	"time"

	workloadpb "github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"

	"github.com/fedhttp/fedhttp/fedtest"
)

// agent serves the X.509 part of the Workload API, as SPIRE's agent does: each
// SVID that it is given goes to whoever watches.
type agent struct {
	workloadpb.UnimplementedSpiffeWorkloadAPIServer
	ca *ca

	mu   sync.Mutex
	svid *x509svid.SVID
	next chan struct{} // closed when there is another svid
}

func (a *agent) rotate(svid *x509svid.SVID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.svid = svid
	if a.next != nil {
		close(a.next)
	}
	a.next = make(chan struct{})
}

func (a *agent) FetchX509SVID(_ *workloadpb.X509SVIDRequest, stream grpc.ServerStreamingServer[workloadpb.X509SVIDResponse]) error {
	for {
		a.mu.Lock()
		svid, next := a.svid, a.next
		a.mu.Unlock()
		key, err := x509.MarshalPKCS8PrivateKey(svid.PrivateKey)
		if err != nil {
			return err
		}
		if err := stream.Send(&workloadpb.X509SVIDResponse{Svids: []*workloadpb.X509SVID{{
			SpiffeId: svid.ID.String(), X509Svid: svid.Certificates[0].Raw, X509SvidKey: key, Bundle: a.ca.cert.Raw,
		}}}); err != nil {
			return err
		}
		select {
		case <-next:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// TestWorkloadAPI has go-spiffe's own client of the Workload API as the identity:
// the server sees the SVID that the agent has issued, and then the next.
func TestWorkloadAPI(t *testing.T) {
	fedtest.CheckLeaks(t)
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a := &agent{ca: newCA(t, domainA)}
	first, second := a.ca.issue(t, client), a.ca.issue(t, client)
	a.rotate(first)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	api := grpc.NewServer()
	workloadpb.RegisterSpiffeWorkloadAPIServer(api, a)
	served := make(chan error, 1)
	go func() { served <- api.Serve(listener) }()
	defer func() {
		api.Stop()
		if err := <-served; err != nil {
			t.Errorf("the agent: %v", err)
		}
	}()
	source, err := workloadapi.NewX509Source(ctx, workloadapi.WithClientOptions(workloadapi.WithAddr("tcp://"+listener.Addr().String())))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()

	b, _, s := newB(t, source)
	server, seen := serveB(t, b, a.ca)
	base := baseOf(t, s, "org-b")
	if _, err := get(t, base, server.URL); err != nil {
		t.Fatal(err)
	}
	a.rotate(second)
	for {
		svid, err := source.GetX509SVID()
		if err != nil {
			t.Fatal(err)
		}
		if svid.Certificates[0].Equal(second.Certificates[0]) {
			break
		}
		if err := source.WaitUntilUpdated(ctx); err != nil {
			t.Fatalf("the source was not told of the rotation: %v", err)
		}
	}
	if _, err := get(t, base, server.URL); err != nil {
		t.Fatal(err)
	}
	seen(first, second)
}
