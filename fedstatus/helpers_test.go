package fedstatus

import (
	"reflect"
	"time"

	"github.com/fedhttp/fedhttp"
)

// stub is a source that is what a test says.
type stub struct {
	peers       []fedhttp.PeerStatus
	escalations []fedhttp.Escalation
	denials     []fedhttp.Denial
}

func (s stub) Status() []fedhttp.PeerStatus            { return s.peers }
func (s stub) RecentEscalations() []fedhttp.Escalation { return s.escalations }
func (s stub) RecentDenials() []fedhttp.Denial         { return s.denials }

// saying returns a source with a peer, an escalation and a denial for each of
// the texts, which stands in every field that can hold a text.
func saying(texts ...string) stub {
	var s stub
	for _, text := range texts {
		s.peers = append(s.peers, filled[fedhttp.PeerStatus](text))
		s.escalations = append(s.escalations, filled[fedhttp.Escalation](text))
		s.denials = append(s.denials, filled[fedhttp.Denial](text))
	}
	return s
}

// filled returns an E whose every string is the text, whose lists have one entry,
// and whose other fields are not zero.
func filled[E any](text string) E {
	var e E
	fill(reflect.ValueOf(&e).Elem(), text)
	return e
}

func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Int:
		v.SetInt(3)
	case reflect.Int64: // a time.Duration
		v.SetInt(int64(3 * time.Second))
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(1)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), text)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, time.March, 4, 5, 6, 7, 0, time.UTC)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), text)
		}
	default:
		panic("a field of a kind that the tests do not fill: " + v.Type().String())
	}
}

// aDay returns what an operator might find: two healthy peers and three that are
// not, as of now.
func aDay(now time.Time) stub {
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	const (
		digest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
		other  = "sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"
	)
	anchored := func(p fedhttp.PeerStatus, version string, age time.Duration) fedhttp.PeerStatus {
		p.AnchorVersion, p.AnchorAge = version, age
		p.AnchorIssuedAt, p.AnchorExpiresAt, p.AnchorDueAt = ago(age+10*time.Minute), now.Add(50*time.Minute), now.Add(25*time.Minute)
		return p
	}
	ambiguous := func(p, capability, task, id string, at time.Duration) fedhttp.Escalation {
		return fedhttp.Escalation{Kind: fedhttp.EscalationAmbiguous, At: ago(at), Decision: fedhttp.Decision{
			Peer: p, Capability: capability, TaskID: task, Outcome: fedhttp.OutcomeAmbiguous, Reason: fedhttp.ReasonNoSignal,
			Delivery: fedhttp.DeliveryAnswered, CorrelationID: id, PolicyDigest: digest, Epoch: 4, Basis: fedhttp.BasisAccepted,
			Attempts: 1, AnchorVersion: "41", Escalated: true,
		}}
	}
	failed := anchored(fedhttp.PeerStatus{
		ID: "org-d", Origins: []string{"https://registry.d.example"}, Breaker: "closed", DenialsLeft: -1, InFlight: 2,
		AnchorError: "anchor \"12\" is older than one that was fetched before",
	}, "13", 62*time.Minute)
	failed.AnchorExpiresAt, failed.AnchorDueAt = ago(2*time.Minute), now.Add(30*time.Second)
	contradicted := ambiguous("org-c", "translate-legal", "task-8812", "9d1c44f0", 21*time.Minute)
	contradicted.Decision.Reason = fedhttp.ReasonContradictorySignals
	contradicted.Decision.Evidence = []fedhttp.Evidence{
		{Source: fedhttp.SourceHeader, Layer: fedhttp.LayerPolicy}, {Source: fedhttp.SourceAnchorIssuedAt, Layer: fedhttp.LayerRouting},
	}
	return stub{
		peers: []fedhttp.PeerStatus{
			anchored(fedhttp.PeerStatus{
				ID: "org-b", Origins: []string{"https://registry.b.example", "https://standby.b.example:8443"},
				Breaker: "closed", DenialsLeft: -1, InFlight: 1,
			}, "107", 4*time.Minute),
			anchored(fedhttp.PeerStatus{
				ID: "org-c", Origins: []string{"https://federation.c.example"}, Breaker: "open", BreakerRetryAt: now.Add(18 * time.Second),
				Degraded: true, Denials: 2, DenialsLeft: 18, Held: 9,
				HeldTasks: []fedhttp.HeldStatus{
					{Capability: "summarize-contracts", Tasks: 7, OldestFor: 12*time.Minute + 40*time.Second, Epoch: 5, Digest: other},
					{Capability: "export-dataset", Tasks: 2, OldestFor: 31 * time.Second},
				},
			}, "41", 9*time.Minute),
			failed,
			{ID: "org-e", Origins: []string{"https://registry.e.example"}, Breaker: "closed", Degraded: true, DenialsLeft: 0, Denials: 20},
			anchored(fedhttp.PeerStatus{ID: "org-f", Origins: []string{"https://registry.f.example"}, Breaker: "off", DenialsLeft: 5}, "2026-03-01", time.Hour),
		},
		escalations: []fedhttp.Escalation{
			ambiguous("org-c", "summarize-contracts", "task-8901", "5b2f09aa-6d1e-4a9c-8f2b-7f1d2f0c9e11", 3*time.Minute),
			contradicted,
			{Kind: fedhttp.EscalationPolicyMismatch, At: ago(5 * time.Hour), Decision: fedhttp.Decision{
				Peer: "org-b", Capability: "translate", TaskID: "task-5120", Outcome: fedhttp.OutcomePolicyMismatch,
				Reason: fedhttp.ReasonReceiptDiffers, Delivery: fedhttp.DeliveryAnswered, CorrelationID: "pe-7731",
				PolicyDigest: other, Epoch: 2, Basis: fedhttp.BasisNegotiated, Attempts: 2, Refreshes: 1, AnchorVersion: "106", HeldFor: 95 * time.Second,
			}},
		},
		denials: []fedhttp.Denial{
			{
				Peer: "org-e", Capability: "export-dataset", Scope: "dataset-12", TaskID: "task-8890", Status: 403, PolicyReason: "SCOPE_NARROWED",
				CorrelationID: "pe-9917", Digest: digest, Epoch: 4, At: ago(6 * time.Minute), Until: now.Add(9 * time.Minute),
			},
			{Peer: "org-c", Capability: "translate-legal", TaskID: "task-8702", CorrelationID: "pe-9001", At: ago(50 * time.Minute), Until: ago(35 * time.Minute)},
		},
	}
}
