package fedconfig

import (
	"encoding"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/fedhttp/fedhttp"
)

// document is the whole of a file. Below it the file's form is that of the
// root's own structs: a field that is added there is in the file at once.
type document struct {
	Version int
	Peers   []fedhttp.Peer
}

// notInFile are the fields that only a program can fill.
var notInFile = []string{"Peer.Base"}

// required are the fields without which there is nothing to configure. What
// else must be there is the root's to say.
var required = []string{"document.Peers", "Peer.ID", "Peer.Origins", "Route.Pattern", "Dialect.Kind", "Hop.Name"}

// defaults are the fields whose zero value stands for another one, and for which.
// A program leaves them out; a file that spells the zero out would be surprised.
var defaults = map[string]string{
	"RetryPolicy.MaxAttempts":        "3",
	"RetryPolicy.MinBackoff":         "100ms",
	"RetryPolicy.MaxBackoff":         "5s",
	"RetryPolicy.MinRefreshInterval": "1s",
	"RetryPolicy.AttemptTimeout":     "1m",
	"RetryPolicy.BudgetRatio":        "0.1",
	"BreakerPolicy.Failures":         "10",
	"BreakerPolicy.OpenFor":          "30s",
	"BreakerPolicy.Trials":           "1",
	"HoldPolicy.Max":                 "10000",
	"HoldPolicy.MaxWait":             "20m",
	"DenialPolicy.HoldOff":           "15m",
	"DenialPolicy.Window":            "1h",
	"Signals.PolicyEvaluated":        "X-Federation-Policy-Evaluated",
	"Signals.CorrelationID":          "X-Correlation-ID and X-Federation-Correlation-ID",
	"Signals.AnchorIssuedAt":         "X-Federation-Anchor-Issued-At",
	"Signals.PolicyReason":           "X-Federation-Policy-Reason",
	"Signals.Receipt":                "X-Federation-Policy-Digest",
	"Signals.Degraded":               "X-Federation-Degraded",
	"Signals.PolicyDigest":           "X-Federation-Policy-Digest",
	"Signals.NegotiationEpoch":       "X-Federation-Negotiation-Epoch",
	"Signals.AnchorVersion":          "X-Federation-Anchor-Version",
}

// wants says what belongs into a field where its type says too little.
var wants = map[string]string{
	"Peer.ID":                     "a name such as org-b",
	"Peer.Origins":                "a list of origins such as https://registry.b.example",
	"Route.Pattern":               "a pattern such as \"POST /v1/tasks/{id}\"",
	"Signals.PolicyEvaluated":     wantHeader,
	"Signals.CorrelationID":       wantHeader,
	"Signals.AnchorIssuedAt":      wantHeader,
	"Signals.PolicyReason":        wantHeader,
	"Signals.Receipt":             wantHeader,
	"Signals.Degraded":            wantHeader,
	"Signals.PolicyDigest":        wantHeader,
	"Signals.NegotiationEpoch":    wantHeader,
	"Signals.AnchorVersion":       wantHeader,
	"Signals.CorrelationPrefixes": "a mapping of prefixes to policy or routing",
	"Hop.Name":                    "the name of a hop",
	"Signals.FailureStatuses":     "a list of statuses from 400 to 599",
}

const wantHeader = "the name of a header"

// field is a field of a struct that a file can give.
type field struct {
	id       string // "Peer.ID"
	name     string // "ID"
	key      string // "id"
	index    int
	required bool
	standard string // what the zero value stands for, "" for itself
	want     string // what belongs here, "" for what its type says
}

func fieldsOf(t reflect.Type) []field {
	var all []field
	for i := range t.NumField() {
		f := t.Field(i)
		id := t.Name() + "." + f.Name
		if !f.IsExported() || slices.Contains(notInFile, id) {
			continue
		}
		all = append(all, field{id, f.Name, keyOf(f.Name), i, slices.Contains(required, id), defaults[id], wants[id]})
	}
	return all
}

func keysOf(t reflect.Type) []string {
	var keys []string
	for _, f := range fieldsOf(t) {
		keys = append(keys, f.key)
	}
	return keys
}

// keyOf returns the file's key for a Go name: "TrustHTTP2Refusal" is
// trust_http2_refusal.
func keyOf(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		// A word begins at a capital after a small letter or digit, and at the last
		// one of an acronym.
		if unicode.IsUpper(r) && i > 0 &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	timeType     = reflect.TypeFor[time.Time]()
	parserType   = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// isEnum reports whether t is one of the root's closed sets.
func isEnum(t reflect.Type) bool {
	return t.Kind() == reflect.Uint8 && reflect.PointerTo(t).Implements(parserType)
}

// tokensOf returns the tokens of a closed set, in its own order.
func tokensOf(t reflect.Type) []string {
	var tokens []string
	for i := range 256 {
		v := reflect.New(t).Elem()
		v.SetUint(uint64(i))
		token, err := v.Interface().(encoding.TextMarshaler).MarshalText()
		if err != nil {
			break
		}
		// What stands for nothing is no use in a file.
		if len(token) == 0 || t == reflect.TypeFor[fedhttp.Layer]() && i == int(fedhttp.LayerUnknown) {
			continue
		}
		tokens = append(tokens, string(token))
	}
	return tokens
}

// nearest returns the word that s was probably meant to be, "" for none.
func nearest(s string, words []string) string {
	plain := func(s string) string {
		return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(s))
	}
	best, distance := "", 1+min(2, len(s)/3)
	if len(s) > 64 {
		return ""
	}
	for _, word := range words {
		if plain(word) == plain(s) {
			return word
		}
		if d := edits(s, word); d < distance {
			best, distance = word, d
		}
	}
	return best
}

// edits is how many letters must be added, left out or changed to make b of a.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
