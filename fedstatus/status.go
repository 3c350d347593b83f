package fedstatus

import "time"

// Status is the JSON that [Handler] serves, for those who decode it. Fields may
// be added. Times are UTC in RFC 3339, to the millisecond; one that is unknown is
// left out. Durations are numbers of seconds. Text is bounded and escaped as the
// package documentation says, in this form too: compare it with what the logs say.
type Status struct {
	// At is when the state was read.
	At      time.Time `json:"at"`
	Summary Summary   `json:"summary"`
	// Peers are those that need attention first, the worst of them at the top,
	// and else in the order of the configuration. Never null.
	Peers        []Peer `json:"peers"`
	PeersOmitted int    `json:"peers_omitted"`
	// HeldKeys are the held tasks of all peers by key, the one that has waited
	// longest first. Never null.
	HeldKeys        []HeldKey `json:"held_keys"`
	HeldKeysOmitted int       `json:"held_keys_omitted"`
	// Escalations and Denials are the last 100 of each, the newest first. Never null.
	Escalations []Escalation `json:"escalations"`
	Denials     []Denial     `json:"denials"`
}

// Summary counts over all peers, those that are left out included.
type Summary struct {
	Peers int `json:"peers"`
	// NeedAttention is how many peers have at least one Problem.
	NeedAttention int `json:"need_attention"`
	// Problems is how many peers have each, zero included.
	Problems map[Problem]int `json:"problems"`
	// RecentEscalations is the sum of the peers', and LastEscalationAt the latest.
	RecentEscalations int       `json:"recent_escalations"`
	LastEscalationAt  time.Time `json:"last_escalation_at,omitzero"`
	// Held tasks wait under HeldKeys keys, the oldest for OldestHeldSeconds.
	Held              int     `json:"held"`
	HeldKeys          int     `json:"held_keys"`
	OldestHeldSeconds float64 `json:"oldest_held_seconds"`
	// InFlight and Denials are the sums of the peers'.
	InFlight int `json:"in_flight"`
	Denials  int `json:"denials"`
}

// Problem is why a peer needs attention: a token of a closed set.
type Problem string

// The problems, the worst first.
const (
	// ProblemBreakerOpen: nothing is sent to the peer.
	ProblemBreakerOpen Problem = "breaker_open"
	// ProblemAnchorExpired: the anchor at hand is past its end.
	ProblemAnchorExpired Problem = "anchor_expired"
	// ProblemDenialBudgetSpent: the peer has denied so often that tasks are
	// refused locally.
	ProblemDenialBudgetSpent Problem = "denial_budget_spent"
	// ProblemEscalations: calls to the peer were escalated within the last hour.
	ProblemEscalations Problem = "escalations"
	// ProblemBreakerHalfOpen: trials alone are sent to the peer.
	ProblemBreakerHalfOpen Problem = "breaker_half_open"
	// ProblemDegraded: the peer's signals are not believed, so nothing is resent.
	ProblemDegraded Problem = "degraded"
	// ProblemAnchorRefreshFailed: the last fetch of the anchor failed.
	ProblemAnchorRefreshFailed Problem = "anchor_refresh_failed"
)

var problems = []Problem{
	ProblemBreakerOpen, ProblemAnchorExpired, ProblemDenialBudgetSpent, ProblemEscalations,
	ProblemBreakerHalfOpen, ProblemDegraded, ProblemAnchorRefreshFailed,
}

// Peer is a [fedhttp.PeerStatus].
type Peer struct {
	ID string `json:"id"`
	// Origins are the first 16; OriginsOmitted counts the others.
	Origins        []string `json:"origins"`
	OriginsOmitted int      `json:"origins_omitted,omitempty"`
	// Problems are the worst first; empty: the peer is healthy.
	Problems []Problem `json:"problems"`
	// Held tasks wait under HeldKeys keys.
	Held     int `json:"held"`
	HeldKeys int `json:"held_keys"`
	InFlight int `json:"in_flight"`
	// RecentEscalations is how many of Status.Escalations are the peer's and of the
	// last hour, at least one where its last is, which other peers' may have replaced
	// there. LastEscalationAt is the time of the peer's last, however old.
	RecentEscalations int       `json:"recent_escalations"`
	LastEscalationAt  time.Time `json:"last_escalation_at,omitzero"`
	Denials           int       `json:"denials"`
	// DenialsLeft is what is left of the budget; -1: there is none.
	DenialsLeft int `json:"denials_left"`
	// Breaker is "closed", "half-open", "open" or "off".
	Breaker        string    `json:"breaker"`
	BreakerRetryAt time.Time `json:"breaker_retry_at,omitzero"`
	Degraded       bool      `json:"degraded"`
	Anchor         Anchor    `json:"anchor"`
}

// Anchor is the state of a peer's trust anchor.
type Anchor struct {
	// Version is "" where there is no anchor.
	Version string `json:"version"`
	// AgeSeconds is the time since the anchor was fetched or confirmed; 0 where
	// there is none.
	AgeSeconds float64   `json:"age_seconds"`
	IssuedAt   time.Time `json:"issued_at,omitzero"`
	ExpiresAt  time.Time `json:"expires_at,omitzero"`
	// DueAt is when Transport.MaintainAnchors fetches the next.
	DueAt time.Time `json:"due_at,omitzero"`
	// Error is why the last fetch failed; "" where it did not.
	Error string `json:"error"`
}

// HeldKey is the held tasks of one peer, capability and advertised policy.
type HeldKey struct {
	Peer          string  `json:"peer"`
	Capability    string  `json:"capability"`
	Tasks         int     `json:"tasks"`
	OldestSeconds float64 `json:"oldest_seconds"`
	// Epoch and Digest are what the peer advertises; 0 and "" where it advertises
	// nothing.
	Epoch  uint64 `json:"epoch"`
	Digest string `json:"digest"`
}

// Escalation is a [fedhttp.Escalation] with its [fedhttp.Decision]. Kind,
// Outcome, Reason, Delivery and Basis are the tokens of the sets of those names,
// and Evidence has entries such as "header=policy".
type Escalation struct {
	At            time.Time `json:"at,omitzero"`
	Kind          string    `json:"kind"`
	Peer          string    `json:"peer"`
	Capability    string    `json:"capability"`
	TaskID        string    `json:"task_id"`
	CorrelationID string    `json:"correlation_id"`
	Outcome       string    `json:"outcome"`
	Reason        string    `json:"reason"`
	Delivery      string    `json:"delivery"`
	Evidence      []string  `json:"evidence"`
	PolicyReason  string    `json:"policy_reason"`
	Digest        string    `json:"digest"`
	Epoch         uint64    `json:"epoch"`
	Basis         string    `json:"basis"`
	Attempts      int       `json:"attempts"`
	Refreshes     int       `json:"refreshes"`
	AnchorVersion string    `json:"anchor_version"`
	HeldSeconds   float64   `json:"held_seconds"`
}

// Denial is a [fedhttp.Denial].
type Denial struct {
	At         time.Time `json:"at,omitzero"`
	Until      time.Time `json:"until,omitzero"`
	Peer       string    `json:"peer"`
	Capability string    `json:"capability"`
	Scope      string    `json:"scope"`
	TaskID     string    `json:"task_id"`
	// Status is the response's; 0 where the connection was refused.
	Status        int    `json:"status"`
	PolicyReason  string `json:"policy_reason"`
	CorrelationID string `json:"correlation_id"`
	Digest        string `json:"digest"`
	Epoch         uint64 `json:"epoch"`
	// Holds tells that Until has not come: like tasks are refused, unless the
	// epoch or digest has moved or the denial was forgotten.
	Holds bool `json:"holds"`
}
