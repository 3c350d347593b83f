// Package fednats lets the replicas of one organisation share what they know of
// their peers, on NATS JetStream: policies, denials, unresolved policies,
// escalations, trust anchors and flags.
//
// Writes go to JetStream, reads come from local memory that a watcher keeps
// current. Nothing that a [fedhttp.Transport] calls on the way of a request waits
// for NATS: with the cluster away, calls are decided from memory, what they leave
// behind is spooled, and beyond [Config.MaxStaleness] nothing that was agreed
// counts any more.
//
//	fleet, err := fednats.Open(ctx, fednats.Config{URL: "tls://nats.example:4222", Replicas: 3, Dir: dir})
//	...
//	defer fleet.Close(context.Background())
//	book := new(fedhttp.PolicyBook)
//	err = fleet.Feed(ctx, book)
//	...
//	transport, err := fedhttp.NewTransport(fedhttp.Config{
//		Peers: peers, Book: book,
//		Denials: fleet.Denials(), Coordinator: fleet.Coordinator(), Escalator: fleet.Escalator(),
//		Anchors: fleet.Anchors(anchors),
//	})
//
// docs/fleet.md says what is shared, how late it may be seen and why that is safe,
// and what each role needs to be permitted.
package fednats
