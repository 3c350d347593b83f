package fedconfig

import (
	"bytes"
	_ "embed" // schema.json
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema (2020-12) of a file of peers, for editors and
// documentation. It knows each field's form, and not what concerns several of
// them or of their elements: what must be there once (ids, origins, headers of
// signals, dialects, hops, names in a pattern), patterns that conflict, plain http beyond loopback, or a
// min_backoff above max_backoff. Nor does it know what variables hold, that whole
// numbers are written without a point or exponent, that durations are from 1ns to
// 292 years and a host has at most 253 characters, which hosts in brackets are IPv6
// addresses, and that the path of a pattern with a method has no empty, "." or ".."
// segments. Only [Parse] finds those.
func Schema() []byte { return bytes.Clone(schema) }
