package fedtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// The headers of a request that a [Peer] reads, and of an answer that it
// writes. HeaderPolicyDigest is both: what a task asks to run under, and the
// receipt that says what it ran under.
const (
	HeaderAnchorVersion    = "X-Federation-Anchor-Version"
	HeaderPolicyDigest     = "X-Federation-Policy-Digest"
	HeaderNegotiationEpoch = "X-Federation-Negotiation-Epoch"

	HeaderPolicyEvaluated = "X-Federation-Policy-Evaluated"
	HeaderPolicyReason    = "X-Federation-Policy-Reason"
	HeaderAnchorIssuedAt  = "X-Federation-Anchor-Issued-At"
	HeaderDegraded        = "X-Federation-Degraded"
	HeaderCorrelationID   = "X-Correlation-ID"
)

// The headers by which a test names its requests. They have no meaning outside
// of this package; see [Config] for what stands in where one is absent.
const (
	HeaderTask       = "X-Fedtest-Task"
	HeaderClient     = "X-Fedtest-Client"
	HeaderCapability = "X-Fedtest-Capability"
)

// DefaultClient is the client whose requests name none.
const DefaultClient = "default"

// Signal is a set of the marks by which an answer tells which layer authored
// it. The zero value is the empty set.
type Signal uint

// The signals. Combine them with |.
const (
	// SignalEvaluated is X-Federation-Policy-Evaluated.
	SignalEvaluated Signal = 1 << iota
	// SignalCorrelation is X-Correlation-ID altogether.
	SignalCorrelation
	// SignalCorrelationPrefix is the layer's prefix of the correlation id;
	// without it the id stays, as a bare number.
	SignalCorrelationPrefix
	// SignalAnchorIssuedAt is X-Federation-Anchor-Issued-At.
	SignalAnchorIssuedAt
	// SignalReason is X-Federation-Policy-Reason.
	SignalReason
	// SignalDetail is the "detail" member of the problem+json body, which
	// repeats the policy reason.
	SignalDetail
	// SignalReceipt is X-Federation-Policy-Digest on an answer.
	SignalReceipt
	// SignalDegraded is X-Federation-Degraded.
	SignalDegraded

	// SignalsTelling are all but the bare correlation id. With these hidden a
	// refusal by policy and a request that the routing layer dropped have the
	// same status, the same headers and the same body.
	SignalsTelling = SignalEvaluated | SignalCorrelationPrefix | SignalAnchorIssuedAt |
		SignalReason | SignalDetail | SignalReceipt | SignalDegraded
	// SignalsAll are all of them.
	SignalsAll = SignalsTelling | SignalCorrelation
)

// Layer names the author of an answer.
type Layer string

// The layers.
const (
	LayerRouting Layer = "routing"
	LayerPolicy  Layer = "policy"
)

// signer writes the signals of one answer.
type signer struct {
	peer   *Peer
	hidden Signal
	header http.Header
}

func (p *Peer) sign(w http.ResponseWriter, x *exchange) signer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return signer{peer: p, hidden: p.hidden | x.hidden, header: w.Header()}
}

func (s signer) set(signal Signal, name, value string) {
	if s.hidden&signal == 0 && value != "" {
		s.header.Set(name, value)
	}
}

// author marks the answer as one of the layer and returns its correlation id,
// if it has one. evaluated is the value of X-Federation-Policy-Evaluated.
func (s signer) author(layer Layer, evaluated string) string {
	s.set(SignalEvaluated, HeaderPolicyEvaluated, evaluated)
	prefix := s.peer.cfg.RoutingPrefix
	if layer == LayerPolicy {
		prefix = s.peer.cfg.PolicyPrefix
	}
	if s.hidden&SignalCorrelationPrefix != 0 {
		prefix = ""
	}
	id := ""
	s.peer.mu.Lock()
	degraded := s.peer.degraded
	if s.hidden&SignalCorrelation == 0 {
		s.peer.correlations++
		id = fmt.Sprintf("%s%08d", prefix, s.peer.correlations)
		s.peer.authors[id] = layer
	}
	s.peer.mu.Unlock()
	s.set(SignalCorrelation, HeaderCorrelationID, id)
	if degraded {
		s.set(SignalDegraded, HeaderDegraded, "true")
	}
	return id
}

// Hide hides the signals from every answer from now on, and shows the others:
// Hide(0) shows all.
func (p *Peer) Hide(hidden Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hidden = hidden
}

// SetDegraded makes the peer say in each answer of a layer that its signals
// are not to be believed just now (X-Federation-Degraded: true), or no longer.
func (p *Peer) SetDegraded(degraded bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.degraded = degraded
}

// Author returns the layer that gave an answer this correlation id, as a
// peer's operator would look it up; false for an id that the peer never gave.
func (p *Peer) Author(correlationID string) (Layer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	layer, ok := p.authors[correlationID]
	return layer, ok
}

// problem is the body of a refusal, as RFC 9457 has it.
type problem struct {
	Type          string `json:"type"`
	Title         string `json:"title"`
	Status        int    `json:"status"`
	Detail        string `json:"detail,omitempty"`
	CorrelationID string `json:"correlation_id,omitempty"`
}

func writeProblem(w http.ResponseWriter, p problem) {
	p.Title = "FederationUnavailable"
	if p.Status < http.StatusInternalServerError {
		p.Title = "FederationDenied"
	}
	p.Type = "urn:federation:problem:" + p.Title
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	// The client may be gone; then nobody is left to tell.
	_ = json.NewEncoder(w).Encode(p)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
