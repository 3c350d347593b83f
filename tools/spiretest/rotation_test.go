package spiretest

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/fedhttp/fedhttp"
)

const (
	testTimeout = 12 * time.Minute
	tasks       = 100
)

// TestRotation rotates the authority of trust domain b.example. What the clients
// in a.example have of its bundle is then out of date: of some for a moment, of
// one for good.
func TestRotation(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	a, b := federate(ctx, t)
	ours, theirs := workload(ctx, t, a), workload(ctx, t, b)
	r := newRegistry(t, theirs, theirs, a.workloadID())
	left := newRegistry(t, b.mint(ctx, t), theirs, a.workloadID()) // never gets another certificate
	c := newClient(t, ours, b, r, 3)
	once := newClient(t, ours, b, r, 1)      // sends nothing again
	late := newClient(t, ours, b, r, 3)      // hears of nothing in time
	toLeft := newClient(t, ours, b, left, 3) // of the other registry, to which it stays connected
	clients := []*client{c, once, late, toLeft}
	for i, each := range clients {
		each.deliver(ctx, t, fmt.Sprintf("before-%d", i), 1)
	}
	old, err := signer(theirs)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d clients have delivered a task each\n    the registry's certificate is by the authority %s\n    the anchor is %s", len(clients), old, c.anchor())

	// The new authority signs. Who has not asked since knows the old one only.
	next := field(t, "Authority ID", b.show(ctx, t, "localauthority", "x509", "prepare"))
	b.show(ctx, t, "localauthority", "x509", "activate", "-authorityID", next)
	awaitSigner(ctx, t, theirs, next)
	t.Logf("the registry's certificate is by the authority %s", next)
	for _, each := range []*client{c, once, late} {
		each.transport.CloseIdleConnections() // they would do for the registry that they were opened to
	}
	testStale(ctx, t, c, once)
	awaitAuthorities(ctx, t, c.bundles, b.trustDomain(), old, next)

	// The old authority goes, once a.example's server has asked, for its agent, and
	// the clients that are maintained. Who has not asked by then is left behind.
	maintain(ctx, t, c)
	maintain(ctx, t, toLeft)
	awaitAuthorities(ctx, t, toLeft.bundles, b.trustDomain(), old, next)
	awaitAuthorities(ctx, t, ours, b.trustDomain(), old, next)
	b.show(ctx, t, "localauthority", "x509", "taint", "-authorityID", old)
	b.show(ctx, t, "localauthority", "x509", "revoke", "-authorityID", old)
	for _, bundles := range []x509bundle.Source{c.bundles, toLeft.bundles, ours} {
		awaitAuthorities(ctx, t, bundles, b.trustDomain(), next)
	}
	toLeft.awaitTaken(ctx, t)
	testRenewed(ctx, t, c)
	testRevoked(ctx, t, toLeft)
	testLate(ctx, t, late, ours, b)
	given, deliveries := r.total()
	if given != deliveries {
		t.Errorf("%d deliveries of %d tasks; want each once", deliveries, given)
	}
	t.Logf("the registry was given %d tasks, %d times in all", given, deliveries)
}

// testStale is about clients that have the old bundle, and a registry whose
// certificate is by the new authority.
func testStale(ctx context.Context, t *testing.T, c, once *client) {
	t.Helper()
	d, err := once.refuse(ctx, t, "stale")
	if unknown := (x509.UnknownAuthorityError{}); !errors.As(err, &unknown) {
		t.Fatalf("with the old bundle: %v; want an x509.UnknownAuthorityError", err)
	}
	t.Logf("a client that may send once: %v\n    outcome %v, reason %v, delivery %v, attempts %d", err, d.Outcome, d.Reason, d.Delivery, d.Attempts)
	fetches, refused := c.fetches.Load(), c.registry.refused()
	resent := c.deliver(ctx, t, "stale", tasks)
	fetches, refused = c.fetches.Load()-fetches, c.registry.refused()-refused
	if resent == 0 {
		t.Error("nothing was sent again: no task has met the new authority with the old bundle")
	}
	if fetches != 1 {
		t.Errorf("%d fetches of the bundle; want one for all", fetches)
	}
	t.Logf("a client that may send again: %d tasks at once, each delivered once\n"+
		"    %d sent again, fetches of the bundle: %d, certificates refused, as the registry saw it: %d\n    the anchor is %s",
		tasks, resent, fetches, refused, c.anchor())
}

// testRenewed is about a client that has heard of all in time.
func testRenewed(ctx context.Context, t *testing.T, c *client) {
	t.Helper()
	if resent := c.deliver(ctx, t, "renewed", tasks); resent != 0 {
		t.Errorf("%d tasks were sent again; want none after a renewal ahead of time", resent)
	}
	t.Logf("a client that MaintainAnchors keeps: %d tasks at once, each delivered once, none sent again\n    the anchor is %s", tasks, c.anchor())
}

// testRevoked is about a registry that still has a certificate by the authority
// that was revoked, and an open connection, which is worth no more than that.
func testRevoked(ctx context.Context, t *testing.T, c *client) {
	t.Helper()
	d, err := c.refuse(ctx, t, "revoked")
	if unknown := (x509.UnknownAuthorityError{}); !errors.As(err, &unknown) {
		t.Fatalf("under a revoked authority: %v; want an x509.UnknownAuthorityError", err)
	}
	if d.Reason != fedhttp.ReasonAnchorUnchanged {
		t.Errorf("reason %v; want %v", d.Reason, fedhttp.ReasonAnchorUnchanged)
	}
	t.Logf("a registry with a certificate by the revoked authority: %v\n    outcome %v, reason %v, delivery %v, attempts %d", err, d.Outcome, d.Reason, d.Delivery, d.Attempts)
}

// testLate is about a client that has asked for no bundle during the rotation:
// with the one that it has it cannot verify the endpoint either.
func testLate(ctx context.Context, t *testing.T, late *client, ours *workloadapi.X509Source, b *domain) {
	t.Helper()
	d, err := late.refuse(ctx, t, "late")
	if d.Reason != fedhttp.ReasonRefreshFailed {
		t.Errorf("reason %v; want %v", d.Reason, fedhttp.ReasonRefreshFailed)
	}
	failed := late.transport.Status()[0].AnchorError
	t.Logf("a client that has slept through it: %v\n    outcome %v, reason %v, delivery %v\n    its bundle: %s", err, d.Outcome, d.Reason, d.Delivery, failed)
	if !strings.Contains(failed, "unknown authority") {
		t.Errorf("its anchor: %q; want an endpoint that it cannot verify", failed)
	}
	again := newClient(t, ours, b, late.registry, 3)
	again.deliver(ctx, t, "again", 1)
	t.Logf("begun anew with the bundle that its agent has: delivered, with the anchor %s", again.anchor())
}

// maintain renews the client's anchors until the test ends.
func maintain(ctx context.Context, t *testing.T, c *client) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.transport.MaintainAnchors(ctx) // that ctx was canceled
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// mint has b's server sign an X.509-SVID with the registry's name and a long
// life, which nobody renews.
func (d *domain) mint(ctx context.Context, t *testing.T) x509svid.Source {
	t.Helper()
	dir := d.folder(t, "minted")
	d.cli(ctx, t, "x509", "mint", "-spiffeID", d.workloadID().String(), "-ttl", "1h", "-write", dir)
	svid, err := x509svid.Load(filepath.Join(dir, "svid.pem"), filepath.Join(dir, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	return svid
}

// federate starts two trust domains that are federated with each other. A
// workload in each has an X.509-SVID; both are this process.
func federate(ctx context.Context, t *testing.T) (a, b *domain) {
	t.Helper()
	ports := freePorts(t, 4)
	a, b = newDomain(t, "a.example", "client", ports[:2]), newDomain(t, "b.example", "registry", ports[2:])
	a.startServer(ctx, t, b)
	b.startServer(ctx, t, a)
	a.trust(ctx, t, b)
	b.trust(ctx, t, a)
	a.startAgent(ctx, t)
	b.startAgent(ctx, t)
	uid := fmt.Sprintf("unix:uid:%d", os.Getuid())
	a.show(ctx, t, "entry", "create", "-parentID", a.id()+"/host", "-spiffeID", a.workloadID().String(),
		"-selector", uid, "-federatesWith", b.id())
	// A short life, so that the new authority signs the registry's next
	// certificate soon.
	b.show(ctx, t, "entry", "create", "-parentID", b.id()+"/host", "-spiffeID", b.workloadID().String(),
		"-selector", uid, "-federatesWith", a.id(), "-x509SVIDTTL", "40")
	return a, b
}

func workload(ctx context.Context, t *testing.T, d *domain) *workloadapi.X509Source {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s, err := workloadapi.NewX509Source(ctx, workloadapi.WithClientOptions(workloadapi.WithAddr(d.workloadAPI())))
	if err != nil {
		t.Fatalf("%s: the Workload API: %v", d.name, err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
