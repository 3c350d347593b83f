package fedhttp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// What a SPIFFE bundle is, beside a JWK Set: the SPIFFE Trust Domain and Bundle
// specification, section 4.
const (
	spiffeX509Use  = "x509-svid"
	spiffeSequence = "spiffe_sequence"
	spiffeHint     = "spiffe_refresh_hint"
)

// parseJWKS reads a JWK Set (RFC 7517). Members that are not known are ignored.
// Names are exact, which encoding/json's structs are not. Two keys may share a kid
// (section 4.5): no key is looked up by it here.
func parseJWKS(data []byte) (anchorSet, error) {
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(data, &doc); err != nil {
		return anchorSet{}, fmt.Errorf("it is no JSON object: %w", err)
	}
	var keys []json.RawMessage
	if raw, ok := doc["keys"]; !ok {
		return anchorSet{}, errors.New("it has no keys")
	} else if err := json.Unmarshal(raw, &keys); err != nil {
		return anchorSet{}, fmt.Errorf("keys are no array: %w", err)
	}
	switch n := len(keys); {
	case n == 0:
		return anchorSet{}, errors.New("the set of keys is empty")
	case n > maxAnchorMembers:
		return anchorSet{}, fmt.Errorf("there are %d keys, and %d are the most", n, maxAnchorMembers)
	}
	var set anchorSet
	members := make([][]byte, len(keys))
	for i, raw := range keys {
		canonical, err := set.addKey(raw)
		if err != nil {
			return anchorSet{}, fmt.Errorf("keys[%d]: %w", i, err)
		}
		members[i] = canonical
	}
	set.version = setVersion(members)
	return set, set.addNumbers(doc)
}

// privateMembers are those that a public key never has: of RSA, EC and OKP keys,
// of symmetric ones, and of AKP (RFC 7518, sections 6.2 to 6.4; RFC 9964).
var privateMembers = []string{"d", "k", "priv"}

// privateRSA are those that a public RSA key never has besides (RFC 7518, section
// 6.3.2): the primes are the key.
var privateRSA = []string{"p", "q", "dp", "dq", "qi", "oth"}

// addKey adds the CA certificate of the key, where it has one, and returns the key
// in a form that does not depend on how it was written down. An x5c is the chain of
// the key itself, which says nothing of who may issue a server's certificate; only
// SPIFFE's use makes it a root.
func (s *anchorSet) addKey(raw json.RawMessage) (canonical []byte, err error) {
	var key map[string]any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&key); err != nil {
		return nil, fmt.Errorf("is no object: %w", err)
	}
	kty, _ := key["kty"].(string)
	if kty == "" {
		return nil, errors.New("has no kty")
	}
	private := privateMembers
	if kty == "RSA" {
		private = slices.Concat(privateMembers, privateRSA)
	}
	for _, name := range private {
		if _, ok := key[name]; ok {
			return nil, fmt.Errorf("is private: it has the member %q; whoever published it should replace it", name)
		}
	}
	if key["use"] == spiffeX509Use {
		x5c, _ := key["x5c"].([]any)
		if len(x5c) != 1 {
			return nil, fmt.Errorf("want an x5c with one certificate, it has %d", len(x5c))
		}
		text, _ := x5c[0].(string)
		der, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, fmt.Errorf("x5c is no base64: %w", err)
		}
		if err := s.addRoot(der); err != nil {
			return nil, fmt.Errorf("x5c: %w", err)
		}
	}
	return json.Marshal(key)
}

// addNumbers reads what SPIFFE adds to a JWK Set.
func (s *anchorSet) addNumbers(doc map[string]json.RawMessage) error {
	if raw, ok := doc[spiffeSequence]; ok {
		if err := json.Unmarshal(raw, &s.sequence); err != nil {
			return fmt.Errorf("%s: %w", spiffeSequence, err)
		}
	}
	// A hint that is not understood says nothing: it is no reason to go without the set.
	var seconds int64
	if err := json.Unmarshal(doc[spiffeHint], &seconds); err == nil && seconds > 0 {
		s.hint = time.Duration(min(seconds, int64(maxAnchorHint/time.Second))) * time.Second
	}
	return nil
}
