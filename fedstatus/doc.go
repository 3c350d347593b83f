// Package fedstatus is an operator's page for a [fedhttp.Transport]: one plain
// HTML page, and the same as JSON ([Status]) for a client that asks for it with
// Accept: application/json.
//
// It shows every peer with its breaker, whether it is degraded, its trust
// anchor's age and end, its denials and what is left of their budget, its held
// tasks and calls in flight; the held tasks by key, the one that has waited
// longest first; and the last 100 escalations and denials with their correlation
// ids. Peers that need attention come first; a peer
// with an escalation within the last hour is one of them ([ProblemEscalations]).
//
// # Mounting it
//
// There is no page unless [Handler] is mounted. It has no authentication of its
// own, and tells who your partners are, what you ask of them and what fails: it
// belongs behind authentication, on a listener of the administrators' and never
// on one that the peers reach:
//
//	admin := http.NewServeMux()
//	admin.Handle("GET /federation", operatorsOnly(fedstatus.Handler(transport)))
//	// … serve admin on 127.0.0.1 or the management network …
//
// # What it never shows
//
// No headers, bodies, terms or tokens are in it. URLs in what it shows (an
// anchor source's error may have one) lack their userinfo, query and fragment.
// What callers and peers named (capabilities, task ids, reasons, correlation
// ids) is cut after 256 bytes, marked by "...", and characters other than
// printable ASCII are escaped as in a Go string, as in the logs: nothing can
// hide, turn the direction of the text or look like another. The page has no
// script and nothing from elsewhere, and its Content-Security-Policy allows
// neither.
//
// # Bounds
//
// A page holds at most 1,000 peers, 1,000 keys of held tasks, 16 origins of a
// peer and 100 escalations and denials. It counts what it leaves out: healthy
// peers first, and the keys that have waited for the shortest time. The totals
// are of all.
package fedstatus
