package main

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// The three organisations.
const (
	orgA = "org-a" // ours
	orgB = "org-b" // the peer registry
	orgC = "org-c" // the federation's operator
)

const (
	negotiationsPath = "/negotiations" // at B and at C
	escalationsPath  = "/escalations"  // at C
)

// defaultTerms is what B's own policy grants every task that names no other.
var defaultTerms = fedhttp.Terms{"output-licensing": "internal-reuse-only"}

// organisations are B and C, each a server of its own on loopback. A is the
// code around them: boundary.go and preflight.go.
type organisations struct {
	b, c *fedtest.Peer
	desk *desk
	edge *edge // B's way in with certificates; nil: B is reached as it is
}

// registry is where A finds B, and whatever B runs but for what its gateway guards.
func (o *organisations) registry() string {
	if o.edge != nil {
		return o.edge.registry.url
	}
	return o.b.URL
}

// gateway is where A sends what B's gateway guards.
func (o *organisations) gateway() string {
	if o.edge != nil {
		return o.edge.gateway.url
	}
	return o.b.URL
}

// rotate replaces what A has to trust B by.
func (o *organisations) rotate() error {
	if o.edge != nil {
		return o.edge.rotate()
	}
	o.b.Rotate()
	return nil
}

// anchorFetches is how often A has fetched B's anchor since the rotation.
func (o *organisations) anchorFetches() int {
	if o.edge != nil {
		return o.edge.fetched()
	}
	return o.b.AnchorFetchesSinceRotation()
}

// openOrganisations starts B and C. B signs its refusals with headers, and in
// status and body all of them are alike: "403 FederationDenied" with a
// correlation id. It is the same B for both clients; what differs is who reads
// the headers.
func openOrganisations(b fedtest.Config, took func(capability string) time.Duration) *organisations {
	o := &organisations{desk: &desk{took: took, agreedAt: map[string]time.Time{}}}
	b.DefaultTerms = defaultTerms
	b.AnchorTTL = time.Hour // of B's time: longer than any run
	b.Hidden = fedtest.SignalCorrelationPrefix | fedtest.SignalDetail
	application := http.NewServeMux()
	application.HandleFunc("POST "+negotiationsPath, o.desk.serve)
	application.HandleFunc("POST /", func(w http.ResponseWriter, _ *http.Request) { answer(w, map[string]string{"status": "done"}) })
	b.Handler = application
	o.b = fedtest.NewPeer(b)
	o.desk.b = o.b

	mediator := &mediator{url: o.b.URL + negotiationsPath, client: o.b.Client()}
	office := http.NewServeMux()
	office.HandleFunc("POST "+negotiationsPath, mediator.serve)
	office.HandleFunc("POST "+escalationsPath, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	o.c = fedtest.NewPeer(fedtest.Config{Handler: office})
	return o
}

func (o *organisations) close() {
	if o.edge != nil {
		o.edge.close()
	}
	o.c.Close()
	o.b.Close()
}

// received is how many requests for the path A made to C, by C's request log.
func (o *organisations) received(path string) int {
	n := 0
	for _, e := range o.c.Routing.Log() {
		if e.Path == path && e.Client == orgA {
			n++
		}
	}
	return n
}

// awaitEscalations waits until as many escalations have reached C as A's
// decisions say were made, for they are handed over in the background. Where
// they do not come, what did come is counted.
func (o *organisations) awaitEscalations(ctx context.Context, made int) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for o.received(escalationsPath) < made {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// negotiation is what one side proposes.
type negotiation struct {
	Client      string        `json:"client"`
	Capability  string        `json:"capability"`
	Epoch       uint64        `json:"epoch"`
	Digest      string        `json:"digest"`
	Obligations fedhttp.Terms `json:"obligations"`
}

// agreement is what both sides agreed to.
type agreement struct {
	Epoch     uint64        `json:"epoch"`
	Digest    string        `json:"digest"`
	Terms     fedhttp.Terms `json:"terms"`
	ExpiresAt time.Time     `json:"expires_at,omitzero"` // zero: it stands until it is revoked
}

// desk is where B negotiates. It takes its time.
type desk struct {
	b    *fedtest.Peer
	took func(capability string) time.Duration

	mu       sync.Mutex
	agreedAt map[string]time.Time // by capability
	lasted   []time.Duration
}

func (d *desk) serve(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	var n negotiation
	if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	offered, ok := d.offer(n.Capability)
	if !ok || offered.Digest != n.Digest || offered.Epoch != n.Epoch || !fedhttp.Terms(offered.Terms).Grants(n.Obligations) {
		http.Error(w, "not what is advertised", http.StatusConflict)
		return
	}
	timer := time.NewTimer(d.took(n.Capability))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		return
	}
	agreed := agreement{Epoch: offered.Epoch, Digest: offered.Digest, Terms: offered.Terms}
	if n.Epoch%2 == 0 {
		agreed.ExpiresAt = time.Now().Add(time.Hour) // this one is for a time, to be negotiated again
	}
	d.b.Agree(n.Client, offered)
	d.mu.Lock()
	d.agreedAt[n.Capability] = time.Now()
	d.lasted = append(d.lasted, time.Since(start))
	d.mu.Unlock()
	answer(w, agreed)
}

func (d *desk) offer(capability string) (fedtest.Advertisement, bool) {
	for _, a := range d.b.Advertisements() {
		if a.Capability == capability {
			return a, true
		}
	}
	return fedtest.Advertisement{}, false
}

// agreedBefore tells whether B had agreed on the capability's policy at the time.
func (d *desk) agreedBefore(capability string, at time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	agreed, ok := d.agreedAt[capability]
	return ok && !at.Before(agreed)
}

// mediator is C's part in a negotiation: it takes A's proposal to B.
type mediator struct {
	url    string
	client *http.Client
}

func (m *mediator) serve(w http.ResponseWriter, r *http.Request) {
	var n negotiation
	if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var agreed agreement
	if err := postJSON(r.Context(), m.client, m.url, orgC, n, &agreed); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	answer(w, agreed)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that has gone needs no answer
}
