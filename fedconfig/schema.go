package fedconfig

import (
	"bytes"
	_ "embed" // schema.json
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema (2020-12) of a file of peers, for editors and
// documentation. It knows each field's form, and not what concerns several of
// them, such as two peers with the same origin.
func Schema() []byte { return bytes.Clone(schema) }
