package fednats

// names are those of the buckets, streams and subjects of a fleet.
type names struct{ prefix string }

func (n names) policies() string { return n.prefix + "-policies" }
func (n names) denials() string  { return n.prefix + "-denials" }
func (n names) degraded() string { return n.prefix + "-degraded" }
func (n names) anchors() string  { return n.prefix + "-anchors" }

func (n names) unresolved() string  { return n.prefix + "-unresolved" }
func (n names) escalations() string { return n.prefix + "-escalations" }

func (n names) unresolvedSubject() string { return n.prefix + ".unresolved." }
func (n names) escalationSubject() string { return n.prefix + ".escalations." }

// bucketStream is the stream that a bucket is kept in, and bucketSubject what its
// keys are published under: NATS's own convention.
func bucketStream(bucket string) string  { return "KV_" + bucket }
func bucketSubject(bucket string) string { return "$KV." + bucket + "." }
