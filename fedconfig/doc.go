// Package fedconfig reads the peers of a [fedhttp.Transport] from YAML or JSON,
// so that operators, who know a peer, need not write Go.
//
//	peers:
//	  - id: org-b
//	    origins: [https://registry.b.example]
//	    signals:
//	      correlation_prefixes: {pe-: policy, rt-: routing}
//	    hold: {max_wait: 5m}
//
// [Load] reads a file once; [Watch] keeps a Transport's peers as the file has
// them. testdata/peers.yaml is a file with every field, its meaning and its
// default; [Schema] is a JSON Schema for editors and documentation. An editor
// that runs the YAML language server takes it from the first line of the file:
//
//	# yaml-language-server: $schema=schema.json
//
// # Form
//
// The file has a list of peers, and may have version: 1. Every field of
// [fedhttp.Peer] but Base is a key, in small letters with underscores. Durations
// are text such as 150ms or 1h30m, the closed sets are their tokens (require,
// trace_context, policy), times are RFC 3339.
//
// A key that is left out means the field's default. A value that would mean
// the default without saying so (max_attempts: 0 is 3 attempts) is a fault, and
// so is a key without a value. Values are not converted: default_terms: {pii:
// false} is a fault, since terms are text and "false" may not be what was meant;
// whole numbers are decimal, and 010 is a fault.
//
// # Faults
//
// An [Error] has every fault of a file, each with its line, column, field and
// what is wanted: unknown keys (with the one that was meant), keys that come
// twice, values of another type, and all that [fedhttp.NewTransport] would
// refuse, such as an origin that two peers claim. What only the transport
// can know, an anchor source for require_anchor, is found when its peers are set.
//
// # References
//
// ${NAME} in a value stands for what the environment variable holds, of
// whatever type the field wants; $$ is a dollar. Keys have no references, and
// what a variable holds is not looked at again. A variable that is not set is a
// fault. In YAML's [ ] and { } put a reference in quotes. A fault shows a value
// with references as the file has it, never what the variables hold; that it is
// negative, or the same as another one, it does say.
//
// # Limits
//
// A file is at most 1 MiB of UTF-8, with or without a byte order mark, lines
// ended by LF or CRLF, and one YAML document. NUL and other control
// characters are faults, those that change the direction of text included.
// What its values with references become is at most 1 MiB in all as well.
// YAML's anchors and aliases work, within 100,000 values in all; merge keys and
// tags are faults. A name that ends in .json makes it JSON, with its own rules; any
// other is read as YAML.
package fedconfig
