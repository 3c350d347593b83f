package fedhttp

// This file is the pure core: what one attempt showed goes in, a verdict comes
// out. It knows neither HTTP clients nor clocks nor sockets, so the whole
// decision table can be tested as a table.

// Layer is who authored a failure. It is a closed set; the zero value is
// LayerUnknown.
type Layer uint8

// The layers.
const (
	LayerUnknown Layer = iota // nobody known
	LayerPolicy               // the policy engine was reached
	LayerRouting              // the request did not get past the routing layer
)

var layerNames = []string{"unknown", "policy", "routing"}

// String returns the layer's token, such as "policy".
func (l Layer) String() string { return enumString(layerNames, "layer", l) }

// MarshalText returns the layer's token, or an error for a value outside the set.
func (l Layer) MarshalText() ([]byte, error) { return enumMarshal(layerNames, "layer", l) }

// UnmarshalText parses a layer's token.
func (l *Layer) UnmarshalText(text []byte) error {
	return enumUnmarshal(layerNames, "layer", l, text)
}

// Verdict is what the evidence of one attempt adds up to. It is a closed set;
// the zero value is VerdictNone.
type Verdict uint8

// The verdicts.
const (
	VerdictNone      Verdict = iota // no federation failure: the answer is the application's
	VerdictRejection                // the policy engine said no
	VerdictRouting                  // the request did not reach a policy engine
	VerdictAmbiguous                // it cannot be told
)

var verdictNames = []string{"none", "rejection", "routing", "ambiguous"}

// String returns the verdict's token, such as "rejection".
func (v Verdict) String() string { return enumString(verdictNames, "verdict", v) }

// MarshalText returns the verdict's token, or an error for a value outside the set.
func (v Verdict) MarshalText() ([]byte, error) { return enumMarshal(verdictNames, "verdict", v) }

// UnmarshalText parses a verdict's token.
func (v *Verdict) UnmarshalText(text []byte) error {
	return enumUnmarshal(verdictNames, "verdict", v, text)
}

// Delivery is what we know ourselves about one attempt. It is a closed set;
// the zero value is DeliveryNone.
type Delivery uint8

// The states of delivery.
const (
	DeliveryNone         Delivery = iota // nothing was sent
	DeliveryNotDelivered                 // proven: no byte of the request can have reached the peer
	DeliveryPossible                     // bytes may have left
	DeliveryAnswered                     // a response came; the signals decide
)

var deliveryNames = []string{"", "not_delivered", "possible", "answered"}

// String returns the delivery's token, such as "not_delivered"; "" for DeliveryNone.
func (d Delivery) String() string { return enumString(deliveryNames, "delivery", d) }

// MarshalText returns the delivery's token, or an error for a value outside the set.
func (d Delivery) MarshalText() ([]byte, error) { return enumMarshal(deliveryNames, "delivery", d) }

// UnmarshalText parses a delivery's token.
func (d *Delivery) UnmarshalText(text []byte) error {
	return enumUnmarshal(deliveryNames, "delivery", d, text)
}

// Source is where a piece of evidence comes from. It is a closed set; the zero
// value is SourceHeader.
type Source uint8

// The sources.
const (
	SourceHeader              Source = iota // the policy-evaluated header
	SourceCorrelationPrefix                 // a configured prefix of the correlation id
	SourceCorrelationResolver               // the CorrelationResolver's answer
	SourceAnchorIssuedAt                    // the peer's anchor is newer than the one the attempt went out under
	SourceDelivery                          // our own proof that nothing was delivered
	SourceTLSAlert                          // the peer's TLS alert about our certificate
	SourceHTTP2Refusal                      // the peer refused the HTTP/2 stream, and is trusted to mean it

	// The dialects.
	SourceProxyStatus
	SourceBearer
	SourceProblem
	SourceHTTP
	SourceEnvoy
	SourceIstio
	SourceLinkerd
	SourceKong
	SourceAWSAPIGateway
	SourceCloudflare
	SourceNginx
	SourceDSP
)

var sourceNames = []string{
	"header", "correlation_prefix", "correlation_resolver", "anchor_issued_at", "delivery", "tls_alert",
	"http2_refusal",
	"proxy_status", "bearer", "problem", "http", "envoy", "istio", "linkerd", "kong", "aws_apigateway", "cloudflare", "nginx", "dsp",
}

// String returns the source's token, such as "header".
func (s Source) String() string { return enumString(sourceNames, "source", s) }

// MarshalText returns the source's token, or an error for a value outside the set.
func (s Source) MarshalText() ([]byte, error) { return enumMarshal(sourceNames, "source", s) }

// UnmarshalText parses a source's token.
func (s *Source) UnmarshalText(text []byte) error {
	return enumUnmarshal(sourceNames, "source", s, text)
}

// Evidence is one observation. Its Layer is the layer it points to;
// LayerUnknown says that the source spoke and could not be understood (another
// value than the ones it may have, or values that differ), which contradicts
// whatever else was said.
type Evidence struct {
	Source Source `json:"source"`
	Layer  Layer  `json:"layer"`
	// Ignored says why the evidence decides nothing, where it does not.
	Ignored Ignored `json:"ignored,omitzero"`
}

// Ignored is why evidence decides nothing. It is a closed set; the zero value is
// IgnoredNot.
type Ignored uint8

// Why evidence is ignored.
const (
	IgnoredNot      Ignored = iota // it decides
	IgnoredUnpinned                // nobody has named the hop that said so; see Dialect
)

var ignoredNames = []string{"", "unpinned"}

// String returns the reason's token, such as "unpinned"; "" for IgnoredNot.
func (i Ignored) String() string { return enumString(ignoredNames, "reason to ignore", i) }

// MarshalText returns the reason's token, or an error for a value outside the set.
func (i Ignored) MarshalText() ([]byte, error) {
	return enumMarshal(ignoredNames, "reason to ignore", i)
}

// UnmarshalText parses a reason's token.
func (i *Ignored) UnmarshalText(text []byte) error {
	return enumUnmarshal(ignoredNames, "reason to ignore", i, text)
}

// String returns "source=layer", such as "header=policy", and
// "source=contradiction" where the source was not understood, followed by
// " ignored=unpinned" where it decides nothing.
func (e Evidence) String() string {
	layer := e.Layer.String()
	if e.Layer == LayerUnknown {
		layer = "contradiction"
	}
	if e.Ignored != IgnoredNot {
		return e.Source.String() + "=" + layer + " ignored=" + e.Ignored.String()
	}
	return e.Source.String() + "=" + layer
}

// facts is what classify judges by.
type facts struct {
	status        int  // the response's status; 0: an error, no response
	failureStatus bool // the status is one of Signals.FailureStatuses
	degraded      bool // the peer's signals cannot be believed just now
	evidence      []Evidence
}

// denies reports whether policy evidence on this status is a rejection. On
// every other status the request passed policy, and the application failed. An
// attempt that ended without a response while the policy engine spoke was
// denied.
func denies(status int) bool {
	switch status {
	case 0, 401, 403, 407, 429, 451:
		return true
	}
	return false
}

// classify adds evidence up. The reason says why an ambiguous attempt is
// ambiguous, and why a routing failure is not to be resent whatever else
// holds; it is ReasonNone for a routing failure that may be.
func classify(f facts) (Verdict, Reason) {
	var policy, routing, contradiction, proven, distrusted bool
	for _, e := range f.evidence {
		if e.Ignored != IgnoredNot {
			continue
		}
		switch e.Layer {
		case LayerPolicy:
			policy = true
		case LayerRouting:
			routing = true
			proven = proven || e.Source == SourceDelivery
			distrusted = distrusted || e.Source == SourceTLSAlert || e.Source == SourceNginx
		default:
			contradiction = true
		}
	}
	contradiction = contradiction || policy && routing

	failure := f.status == 0 || f.failureStatus || f.status >= 400 && (routing || contradiction)
	switch {
	case !failure:
		return VerdictNone, ReasonNone
	case contradiction:
		return VerdictAmbiguous, ReasonContradictorySignals
	case policy && denies(f.status):
		return VerdictRejection, ReasonDenied
	case policy:
		return VerdictNone, ReasonNone
	case distrusted:
		return VerdictRouting, ReasonPeerDistrustsUs
	case routing && f.degraded && !proven:
		return VerdictAmbiguous, ReasonPeerDegraded
	case routing && f.degraded:
		return VerdictRouting, ReasonPeerDegraded
	case routing:
		return VerdictRouting, ReasonNone
	default:
		return VerdictAmbiguous, ReasonNoSignal
	}
}

// layerOf is the layer that all of the evidence points to.
func layerOf(evidence []Evidence) Layer {
	layer, first := LayerUnknown, true
	for _, e := range evidence {
		if e.Ignored != IgnoredNot {
			continue
		}
		if !first && e.Layer != layer {
			return LayerUnknown
		}
		layer, first = e.Layer, false
	}
	return layer
}
