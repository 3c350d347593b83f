package main

// kind is a kind of decision that a trace is shown of.
type kind struct{ name, meaning string }

// The kinds, in the order in which they are shown: every outcome, and delivered
// three times.
var kinds = []kind{
	{"delivered", "The peer's application answered."},
	{"delivered after hold", "Its policy was not agreed yet. The task waited, unsent, and went when the negotiation was done."},
	{"delivered after refresh", "The peer's routing layer dropped it for a stale anchor. The anchor was fetched anew, and the task sent again."},
	{"rejected", "The peer's policy engine said no. Sent once, never again; the denial is on record."},
	{"routing_failed", "The peer's routing layer says that it passed nothing on, and said so again after each refresh. An operator was told."},
	{"ambiguous", "A 403 without a sign of its author: it may be a denial. Not sent again; an operator was told."},
	{"policy_unresolved", "The task's deadline came before its policy was agreed. Not sent."},
	{"scope_denied", "A denial of an earlier task covers this one. Not sent."},
	{"peer_unavailable", "The peer's circuit breaker is open. Not sent."},
	{"unknown_peer", "The URL belongs to no configured peer. Not sent."},
	{"task_required", "Obligations without a capability cannot be checked. Not sent."},
	{"policy_mismatch", "The peer ran it under another policy than the agreed one. The answer is withheld; an operator was told."},
	{"canceled", "The caller gave up while the peer had the request."},
}

func kindNames() []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.name
	}
	return names
}

// meaningOf says what a kind of decision is; empty for one that is not listed.
func meaningOf(name string) string {
	for _, k := range kinds {
		if k.name == name {
			return k.meaning
		}
	}
	return ""
}
