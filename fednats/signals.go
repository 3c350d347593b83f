package fednats

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"time"

	"github.com/fedhttp/fedhttp"
)

// Coordinator returns what publishes unresolved policies for the fleet's
// negotiators, on PREFIX.unresolved.PEER.HASH: one for each (peer, capability,
// epoch, digest) in ten minutes, however many replicas and tasks wait for it. It
// never waits. Without PartUnresolved it writes to the log.
func (f *Fleet) Coordinator() fedhttp.Coordinator { return coordinator{f} }

// Escalator returns what publishes escalations for the fleet's operators, on
// PREFIX.escalations.PEER.ID: each of them once. It never waits. Without
// PartEscalations it writes to the log.
func (f *Fleet) Escalator() fedhttp.Escalator { return escalator{f} }

type coordinator struct{ f *Fleet }

func (c coordinator) PolicyUnresolved(_ context.Context, u fedhttp.Unresolved) {
	value, err := json.Marshal(u)
	if err != nil || c.f.unresolved == nil {
		c.f.log.Warn("fednats: unresolved policy, not shared", slog.String("peer", u.Peer), slog.String("capability", quote(u.Capability)))
		return
	}
	id := digestOf(u.Peer, u.Capability, strconv.FormatUint(u.Epoch, 10), u.Digest, u.Reason.String())
	c.f.unresolved.add(item{
		ID: id, Subject: c.f.names.unresolvedSubject() + token(u.Peer) + "." + id, Data: value,
		Until: u.At.Add(unresolvedTTL),
	})
}

type escalator struct{ f *Fleet }

func (e escalator) Escalate(_ context.Context, esc fedhttp.Escalation) {
	value, err := json.Marshal(escalationValue{From: e.f.cfg.Name, Escalation: esc})
	if err != nil || e.f.escalated == nil {
		e.f.log.Error("fednats: escalation, not shared", slog.String("peer", esc.Decision.Peer),
			slog.String("kind", esc.Kind.String()), slog.String("correlation_id", esc.Decision.CorrelationID))
		return
	}
	id := digestOf(string(value))
	e.f.escalated.add(item{
		ID: id, Subject: e.f.names.escalationSubject() + token(esc.Decision.Peer) + "." + id, Data: value, Once: true,
	})
}

// escalationValue is a message of the escalations' stream. One with AckedBy has
// taken the place of the one that it acknowledges.
type escalationValue struct {
	From       string             `json:"from"`
	Escalation fedhttp.Escalation `json:"escalation"`
	AckedBy    string             `json:"acked_by,omitempty"`
	AckedAt    time.Time          `json:"acked_at,omitzero"`
}
