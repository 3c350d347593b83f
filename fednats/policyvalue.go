package fednats

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fedhttp/fedhttp"
)

// The kinds of policy records, with which their keys begin, so that permissions can
// tell who may write what of which peer:
//
//	adv.PEER.CAPABILITY
//	acc.PEER.CAPABILITY.EPOCH.DIGEST
//	neg.PEER.CAPABILITY.EPOCH
const (
	kindAdvertised = "adv"
	kindAccepted   = "acc"
	kindNegotiated = "neg"
)

// policyValue is a record as the bucket has it.
type policyValue struct {
	Peer       text        `json:"peer"`
	Capability text        `json:"capability"`
	Epoch      uint64      `json:"epoch"`
	Digest     text        `json:"digest"`
	Withdrawn  bool        `json:"withdrawn,omitempty"`  // of an advertisement
	Terms      *termsValue `json:"terms,omitempty"`      // of the others; none is not the same as no terms
	ExpiresAt  *time.Time  `json:"expires_at,omitempty"` // of a negotiation
}

type termsValue map[text]text

func newPolicyValue(key fedhttp.PolicyKey, digest string, terms fedhttp.Terms) policyValue {
	v := policyValue{Peer: text(key.Peer), Capability: text(key.Capability), Epoch: key.Epoch, Digest: text(digest)}
	if terms != nil {
		t := make(termsValue, len(terms))
		for k, value := range terms {
			t[text(k)] = text(value)
		}
		v.Terms = &t
	}
	return v
}

func (v *policyValue) key() fedhttp.PolicyKey {
	return fedhttp.PolicyKey{Peer: string(v.Peer), Capability: string(v.Capability), Epoch: v.Epoch}
}

func (v *policyValue) terms() fedhttp.Terms {
	if v.Terms == nil {
		return nil
	}
	t := make(fedhttp.Terms, len(*v.Terms))
	for k, value := range *v.Terms {
		t[string(k)] = string(value)
	}
	return t
}

// name returns the key that a record of the kind has in the bucket.
func (v *policyValue) name(kind string) string { return string(v.appendName(nil, kind)) }

func (v *policyValue) appendName(b []byte, kind string) []byte {
	b = append(append(b, kind...), '.')
	b = append(appendToken(b, string(v.Peer)), '.')
	b = appendToken(b, string(v.Capability))
	if kind != kindAdvertised {
		b = strconv.AppendUint(append(b, '.'), v.Epoch, 10)
	}
	if kind == kindAccepted {
		b = appendToken(append(b, '.'), string(v.Digest))
	}
	return b
}

// check names what no record can have.
func (v *policyValue) check(kind string) error {
	var faults []error
	for _, f := range []struct{ name, value string }{
		{"peer", string(v.Peer)}, {"capability", string(v.Capability)}, {"digest", string(v.Digest)},
	} {
		switch {
		case f.value == "":
			faults = append(faults, fmt.Errorf("its %s is empty", f.name))
		case len(f.value) > maxName:
			faults = append(faults, fmt.Errorf("its %s is longer than %d bytes", f.name, maxName))
		case strings.ContainsFunc(f.value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			faults = append(faults, fmt.Errorf("its %s has control characters", f.name))
		}
	}
	if v.Withdrawn && kind != kindAdvertised || v.Terms != nil && kind == kindAdvertised ||
		(v.ExpiresAt != nil) != (kind == kindNegotiated) {
		faults = append(faults, errors.New("its fields are of another kind of record"))
	}
	return errors.Join(faults...)
}

const maxName = 1000 // what the PolicyBook takes

// readPolicy reads a record that was found under a key.
func readPolicy(key string, value []byte) (kind string, v policyValue, err error) {
	kind, _, _ = strings.Cut(key, ".")
	if kind != kindAdvertised && kind != kindAccepted && kind != kindNegotiated {
		return "", v, errors.New("the key is none of a policy")
	}
	if err := decode(value, &v); err != nil {
		return kind, v, err
	}
	if err := v.check(kind); err != nil {
		return kind, v, err
	}
	if string(v.appendName(make([]byte, 0, 256), kind)) != key {
		return kind, v, fmt.Errorf("the value is of another key: peer %s, capability %s, epoch %d",
			quote(string(v.Peer)), quote(string(v.Capability)), v.Epoch)
	}
	return kind, v, nil
}

// nameOnly returns what a key says by itself: of a deletion there is nothing else.
// It reports false where the key has a hash, or is none of a policy.
func nameOnly(key string) (kind string, v policyValue, ok bool) {
	tokens := strings.Split(key, ".")
	want := map[string]int{kindAdvertised: 3, kindAccepted: 5, kindNegotiated: 4}[tokens[0]]
	if want != len(tokens) {
		return "", v, false
	}
	peer, ok1 := untoken(tokens[1])
	capability, ok2 := untoken(tokens[2])
	if !ok1 || !ok2 {
		return "", v, false
	}
	v.Peer, v.Capability = text(peer), text(capability)
	if want > 3 {
		epoch, err := strconv.ParseUint(tokens[3], 10, 64)
		if err != nil {
			return "", v, false
		}
		v.Epoch = epoch
	}
	if want > 4 {
		digest, ok := untoken(tokens[4])
		if !ok {
			return "", v, false
		}
		v.Digest = text(digest)
	}
	return tokens[0], v, true
}
