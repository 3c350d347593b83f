package fednats

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// A key is tokens that dots separate. Peers, capabilities and digests are arbitrary
// strings and NATS's tokens are not, so each becomes a token in one of three forms,
// which differ in their first byte:
//
//	org-b       what is letters, digits, "-" and "_" and begins with one of the first two, as it is
//	=b3JnIGI    anything else, in base64url
//	/3q2-7w...  what is longer than maxPlain, as a hash: it has to be read in the value
//
// So different strings have different tokens, and no key is longer than a few
// hundred bytes. Readers decode values alone, and compare the key that these have
// with the one they were found under.
const maxPlain = 96

func token(s string) string { return string(appendToken(nil, s)) }

func appendToken(b []byte, s string) []byte {
	switch {
	case len(s) > maxPlain:
		sum := sha256.Sum256([]byte(s))
		return base64.RawURLEncoding.AppendEncode(append(b, '/'), sum[:])
	case isPlainToken(s):
		return append(b, s...)
	default:
		return base64.RawURLEncoding.AppendEncode(append(b, '='), []byte(s))
	}
}

// untoken is the opposite of token. It reports false for a hash, and for what
// token never returns.
func untoken(t string) (string, bool) {
	s := t
	if rest, encoded := strings.CutPrefix(t, "="); encoded {
		b, err := base64.RawURLEncoding.DecodeString(rest)
		if err != nil {
			return "", false
		}
		s = string(b)
	}
	return s, token(s) == t && !strings.HasPrefix(t, "/")
}

// hasHash reports whether a token of a key is a hash.
func hasHash(key string) bool { return strings.Contains(key, "./") }

func isPlainToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && (i == 0 || c != '-' && c != '_') {
			return false
		}
	}
	return s != ""
}

// digestOf is a short name for content: fields after their lengths, hashed.
func digestOf(fields ...string) string {
	h := sha256.New()
	for _, f := range fields {
		var n [8]byte
		for i := range n {
			n[i] = byte(uint64(len(f)) >> (8 * i))
		}
		h.Write(n[:])
		h.Write([]byte(f))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
