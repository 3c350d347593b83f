package main

import (
	"net/http"
	"strings"

	"github.com/dunglas/httpsfv"

	"github.com/fedhttp/fedhttp"
)

// ownPrefix begins the header fields that the gateway and its clients talk in.
// They come from neither side of it: a peer's are removed, and a client's do not
// reach a peer. What begins with ownWord alone is a misspelling.
const (
	ownWord   = "Fedhttp"
	ownPrefix = ownWord + "-"
)

const decisionHeader = ownPrefix + "Decision"

// refused is the outcome in a decision of the gateway's own: the request was not
// handed to the transport.
const refused = "refused"

// decisionField writes a decision as a Dictionary of RFC 9651.
func decisionField(d fedhttp.Decision) string {
	return field(d.Outcome.String(), d.Reason.String(), d.Peer, max(0, d.Attempts-1), d.CorrelationID)
}

func field(outcome, reason, peer string, resends int, correlationID string) string {
	dict := httpsfv.NewDictionary()
	dict.Add("outcome", httpsfv.NewItem(httpsfv.Token(outcome)))
	if reason != "" {
		dict.Add("reason", httpsfv.NewItem(httpsfv.Token(reason)))
	}
	if peer != "" {
		dict.Add("peer", httpsfv.NewItem(plain(peer)))
	}
	dict.Add("resends", httpsfv.NewItem(int64(resends)))
	if correlationID != "" {
		dict.Add("correlation-id", httpsfv.NewItem(plain(correlationID)))
	}
	text, err := httpsfv.Marshal(dict)
	if err != nil { // the tokens are ours, and plain is what strings may have
		return "outcome=" + outcome
	}
	return text
}

// removePrefixed removes the fields whose names begin so, however they are spelled.
func removePrefixed(h http.Header, prefix string) {
	for name := range h {
		if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
			delete(h, name)
		}
	}
}
