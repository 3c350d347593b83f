package fedhttp

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Dialect is a vocabulary in which the hops in front of a peer say who failed,
// and the hops that are believed. A dialect that names no hop is unpinned: what
// it says is recorded as evidence with "ignored=unpinned", and decides nothing.
//
// Forgery is lopsided: a forged word for policy costs one lost task, a forged
// word for routing a duplicate. So name a hop only where it overwrites what comes
// from behind it.
type Dialect struct {
	// Kind says which vocabulary. Required.
	Kind DialectKind
	// Hops are believed. For DialectProxyStatus each is known by the identifier
	// with which it signs; for the others Name is yours to choose, for those who
	// read the configuration. None: unpinned.
	Hops []Hop
}

// Hop is an intermediary that the operator has named.
type Hop struct {
	// Name is, for DialectProxyStatus, the identifier of its member of the field,
	// letter for letter. Required, and another for each hop of a dialect.
	Name string
	// Envoy says that the hop is an Envoy, whose connection_timeout,
	// destination_unavailable and connection_limit_reached say routing only with
	// the response flags UF, UH, NR or DF in their details.
	Envoy bool
	// Policy says that the hop enforces policy, so that its http_request_denied is
	// a rejection. Its other errors prove nothing: it may have decided before them.
	// Nor does what a hop behind it says of routing.
	Policy bool
}

// DialectKind is a vocabulary. It is a closed set; the zero value is none, which
// is a fault.
type DialectKind uint8

// The dialects. What each says is in docs/dialects.md.
const (
	// DialectUnset is no dialect.
	DialectUnset DialectKind = iota
	// DialectProxyStatus is the Proxy-Status field (RFC 9209).
	DialectProxyStatus
	// DialectBearer is WWW-Authenticate of OAuth 2.0 (RFC 6750).
	DialectBearer
	// DialectProblem is problem details (RFC 9457) of a registered type.
	DialectProblem
	// DialectHTTP is the statuses 421 (RFC 9110) and 425 (RFC 8470).
	DialectHTTP
	// DialectEnvoy and DialectIstio are the local replies of Envoy.
	DialectEnvoy
	DialectIstio
	// DialectLinkerd is l5d-proxy-error.
	DialectLinkerd
	// DialectKong is the errors of Kong Gateway.
	DialectKong
	// DialectAWSAPIGateway is x-amzn-ErrorType of Amazon API Gateway.
	DialectAWSAPIGateway
	// DialectCloudflare is the statuses 520 to 526.
	DialectCloudflare
	// DialectNginx is nginx's own pages about our certificate.
	DialectNginx
	// DialectDSP is the errors of the Dataspace Protocol.
	DialectDSP
)

var dialectNames = []string{
	"", "proxy-status", "bearer", "problem", "http", "envoy", "istio", "linkerd", "kong", "aws-apigateway", "cloudflare", "nginx", "dsp",
}

// String returns the dialect's token, such as "proxy-status"; "" for DialectUnset.
func (k DialectKind) String() string { return enumString(dialectNames, "dialect", k) }

// MarshalText returns the dialect's token, or an error for a value outside the set.
func (k DialectKind) MarshalText() ([]byte, error) { return enumMarshal(dialectNames, "dialect", k) }

// UnmarshalText parses a dialect's token.
func (k *DialectKind) UnmarshalText(text []byte) error {
	return enumUnmarshal(dialectNames, "dialect", k, text)
}

// reply is what a dialect looks at.
type reply struct {
	status  int
	header  http.Header
	newConn bool   // it came over a connection that was made for this request
	body    string // where a dialect asks for it, and it is short and whole
}

// remark is what a dialect takes a reply to say.
type remark struct {
	layer Layer // LayerUnknown: it contradicts itself
	// stale says that our copy of the peer's keys is what the peer complains of,
	// so that only a newer one helps.
	stale    bool
	unpinned bool
}

// reach is how far a hop that is believed says that the request got.
type reach uint8

const (
	reachUnknown    reach = iota
	reachAnswered         // further than that hop, and what came back is the answer
	reachDispatched       // further than that hop, which may have made the answer all the same
)

// vocabulary is how one dialect is read: a pure function.
type vocabulary struct {
	source Source
	body   func(*reply) bool // whether it looks into the body under such a header, if at all
	read   func(a *reply, hops []Hop) ([]remark, reach)
}

// vocabularies are the dialects by kind. Where a table says that an answer proves
// nothing, there is no remark.
var vocabularies = [...]vocabulary{
	DialectProxyStatus:   {source: SourceProxyStatus, read: readProxyStatus},
	DialectBearer:        {source: SourceBearer, read: one(readBearer)},
	DialectProblem:       {source: SourceProblem, body: mayBeProblem, read: one(readProblem)},
	DialectHTTP:          {source: SourceHTTP, read: one(readHTTP)},
	DialectEnvoy:         {source: SourceEnvoy, body: mayBeEnvoy, read: one(readEnvoy)},
	DialectIstio:         {source: SourceIstio, body: mayBeEnvoy, read: one(readEnvoy)},
	DialectLinkerd:       {source: SourceLinkerd, read: one(readLinkerd)},
	DialectKong:          {source: SourceKong, body: mayBeKong, read: one(readKong)},
	DialectAWSAPIGateway: {source: SourceAWSAPIGateway, read: one(readAWS)},
	DialectCloudflare:    {source: SourceCloudflare, read: one(readCloudflare)},
	DialectNginx:         {source: SourceNginx, body: mayBeNginx, read: one(readNginx)},
	DialectDSP:           {source: SourceDSP, body: mayBeDSP, read: one(readDSP)},
}

// one makes a vocabulary of a function that knows nothing of hops: naming one
// pins all that it says.
func one(read func(*reply) (remark, bool)) func(*reply, []Hop) ([]remark, reach) {
	return func(a *reply, hops []Hop) ([]remark, reach) {
		w, spoke := read(a)
		if !spoke {
			return nil, reachUnknown
		}
		w.unpinned = len(hops) == 0
		return []remark{w}, reachUnknown
	}
}

var (
	saysPolicy  = remark{layer: LayerPolicy}
	saysRouting = remark{layer: LayerRouting}
	nothing     = remark{}
)

// compileDialects validates the dialects and reports each fault by its field.
func compileDialects(dialects []Dialect, fault func(field, format string, args ...any)) []Dialect {
	known := map[DialectKind]bool{}
	compiled := make([]Dialect, 0, len(dialects))
	for i, d := range dialects {
		field := "Signals.Dialects[" + strconv.Itoa(i) + "]"
		switch {
		case d.Kind == DialectUnset:
			fault(field+".Kind", "is missing; want one of %q", dialectNames[1:])
		case int(d.Kind) >= len(dialectNames):
			fault(field+".Kind", "%d is no dialect; want one of "+enumChoices(dialectNames), d.Kind)
		case known[d.Kind]:
			fault(field+".Kind", "%s is there twice; name all hops in one", d.Kind)
		}
		known[d.Kind] = true
		hops, named := make([]Hop, 0, len(d.Hops)), map[string]bool{}
		for j, h := range d.Hops {
			field := field + ".Hops[" + strconv.Itoa(j) + "]"
			switch {
			case h.Name == "":
				fault(field+".Name", "is empty; want the name of the hop")
			case named[h.Name]:
				fault(field+".Name", "%s is there twice", quote(h.Name))
			case d.Kind == DialectProxyStatus && !canSign(h.Name):
				fault(field+".Name", "%s is no identifier of Proxy-Status, which is printable ASCII", quote(h.Name))
			}
			named[h.Name] = true
			if (h.Envoy || h.Policy) && d.Kind != DialectProxyStatus {
				fault(field, "Envoy and Policy are for proxy-status only")
			}
			hops = append(hops, h)
		}
		compiled = append(compiled, Dialect{d.Kind, hops})
	}
	return compiled
}

// wants reports whether the dialect has to see the body.
func (v vocabulary) wants(a *reply) bool {
	return v.body != nil && len(a.header["Content-Encoding"]) == 0 && v.body(a)
}

// wantsBody reports whether a dialect of the peer has to see the body.
func (t *signalTable) wantsBody(a *reply) bool {
	return slices.ContainsFunc(t.dialects, func(d Dialect) bool { return vocabularies[d.Kind].wants(a) })
}

// readDialects adds what the dialects say.
func (t *signalTable) readDialects(r *reading, a *reply) {
	for _, d := range t.dialects {
		v := vocabularies[d.Kind]
		if v.body != nil && !v.wants(a) {
			continue
		}
		words, far := v.read(a, d.Hops)
		for _, w := range words {
			e := Evidence{Source: v.source, Layer: w.layer}
			if w.unpinned {
				e.Ignored = IgnoredUnpinned
			}
			r.evidence = append(r.evidence, e)
			r.staleAnchor = r.staleAnchor || w.stale && !w.unpinned
		}
		r.reach = max(r.reach, far)
	}
	r.weigh()
}

// weigh adds a contradiction where somebody says that the request did not get
// through, and a hop that it got further than that hop. An answer that the hop has
// passed on is no reply of the hops in front, and may well carry the peer's own
// word; one that may be the hop's own carries nobody's. What the hops of
// Proxy-Status say themselves is weighed in that field.
func (r *reading) weigh() {
	for _, e := range r.evidence {
		if e.Layer != LayerRouting || e.Ignored != IgnoredNot || e.Source == SourceProxyStatus {
			continue
		}
		if r.reach == reachDispatched || r.reach == reachAnswered && isDialect(e.Source) {
			r.evidence = append(r.evidence, Evidence{Source: SourceProxyStatus})
			return
		}
	}
}

func isDialect(s Source) bool {
	return slices.ContainsFunc(vocabularies[DialectUnset+1:], func(v vocabulary) bool { return v.source == s })
}

// single returns the only value of a field, "" where there is none or several:
// of two, one is not its owner's.
func (a *reply) single(name string) string {
	if values := a.header[name]; len(values) == 1 {
		return strings.Trim(values[0], " \t")
	}
	return ""
}
