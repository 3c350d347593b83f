package fedhttp

// readPolicyReason finds the peer's reason for a rejection: its header, or
// where the peer's Signals say so, the detail of problem details (RFC 9457).
func (c *call) readPolicyReason(a *attempt) {
	sig := &c.peer.signals
	if reason := a.resp.Header.Get(sig.policyReason); reason != "" {
		c.detail().policyReason = shown(reason)
		return
	}
	if sig.readProblemDetail && vocabularies[DialectProblem].wants(&reply{header: a.resp.Header}) {
		c.detail().policyReason = shown(jsonStrings(c.peek(a), "detail")["detail"])
	}
}
