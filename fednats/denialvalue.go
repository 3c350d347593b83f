package fednats

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/fedhttp/fedhttp"
)

var errOtherKey = errors.New("the value is of another key")

// denialValue is a denial as the bucket has it.
type denialValue struct {
	Peer          text      `json:"peer"`
	Capability    text      `json:"capability"`
	Scope         text      `json:"scope,omitempty"`
	Epoch         uint64    `json:"epoch,omitempty"`
	Digest        text      `json:"digest,omitempty"`
	TaskID        text      `json:"task_id,omitempty"`
	Status        int       `json:"status,omitempty"`
	PolicyReason  text      `json:"policy_reason,omitempty"`
	CorrelationID text      `json:"correlation_id,omitempty"`
	At            time.Time `json:"at"`
	Until         time.Time `json:"until"`
}

func newDenialValue(d fedhttp.Denial) denialValue {
	return denialValue{
		Peer: text(d.Peer), Capability: text(d.Capability), Scope: text(d.Scope), Epoch: d.Epoch, Digest: text(d.Digest),
		TaskID: text(d.TaskID), Status: d.Status, PolicyReason: text(d.PolicyReason), CorrelationID: text(d.CorrelationID),
		At: d.At.UTC().Round(0), Until: d.Until.UTC().Round(0),
	}
}

func (v *denialValue) denial() fedhttp.Denial {
	return fedhttp.Denial{
		Peer: string(v.Peer), Capability: string(v.Capability), Scope: string(v.Scope), Epoch: v.Epoch, Digest: string(v.Digest),
		TaskID: string(v.TaskID), Status: v.Status, PolicyReason: string(v.PolicyReason), CorrelationID: string(v.CorrelationID),
		At: v.At, Until: v.Until,
	}
}

func (v *denialValue) name() string {
	covers := digestOf(string(v.Scope), strconv.FormatUint(v.Epoch, 10), string(v.Digest))
	return strings.Join([]string{kindDenial, token(string(v.Peer)), token(string(v.Capability)), covers}, ".")
}

// forgetValue ends the denials before it.
type forgetValue struct {
	Peer       text      `json:"peer"`
	Capability text      `json:"capability,omitempty"` // "": all of the peer's
	At         time.Time `json:"at"`
}

func (v *forgetValue) name() string {
	if v.Capability == "" {
		return kindForget + "." + token(string(v.Peer))
	}
	return kindForget + "." + token(string(v.Peer)) + "." + token(string(v.Capability))
}

func hasKind(key, kind string) bool { return strings.HasPrefix(key, kind+".") }
