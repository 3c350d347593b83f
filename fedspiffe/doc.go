// Package fedspiffe connects a [fedhttp.Transport] to peers that are SPIFFE trust
// domains: their bundles are the trust anchors, our X.509-SVID is the client
// certificate, and which of the peer's SPIFFE IDs may serve us is checked in the
// handshake.
//
//	source, err := fedspiffe.New(fedspiffe.Config{
//		Identity: workload, // such as *workloadapi.X509Source
//		Peers: map[string]fedspiffe.Peer{"org-b": {
//			TrustDomain: spiffeid.RequireTrustDomainFromString("b.example"),
//			Servers:     []spiffeid.ID{spiffeid.RequireFromString("spiffe://b.example/registry")},
//			Endpoint:    fedspiffe.Endpoint{URL: "https://bundle.b.example/", Profile: fedspiffe.HTTPSWeb},
//		}},
//	})
//	base, err := source.Base("org-b")
//	transport, err := fedhttp.NewTransport(fedhttp.Config{
//		Anchors: source,
//		Peers:   []fedhttp.Peer{{ID: "org-b", Origins: origins, Base: base}},
//	})
//	go transport.MaintainAnchors(ctx)
//
// Both halves are needed. A peer whose Base is not that of the Source is
// verified by host name under the bundle's authorities, which knows nothing of
// SPIFFE IDs.
//
// # What a handshake comes to
//
// The server's certificate is verified under the bundle that the Source holds for
// the peer's trust domain at that moment, by go-spiffe.
//
//   - No authority of the bundle has signed it: [x509.UnknownAuthorityError], as
//     after a rotation that we have not heard of. Nothing was delivered, so the
//     Transport fetches the bundle and sends again.
//   - It is no X.509-SVID, as one without a SPIFFE ID or with two URIs is, or its
//     SPIFFE ID is of another trust domain, or not one of [Peer.Servers]: an error
//     that wraps [fedhttp.ErrPeerUntrusted]. That is our own policy: no bundle
//     could change it, so none is fetched, and nothing is sent again.
//   - The identity has no certificate to show: an error that wraps
//     [fedhttp.ErrClientCertificate], which is handled likewise.
//
// A session that is resumed is verified like any other, so one that was begun
// under authorities that have left the bundle is of no use. The identity is asked
// for a certificate at each handshake: one that rotates is shown on the next
// connection, and those that are open keep what they were opened with.
//
// # What a bundle must be
//
// A fetched bundle is adopted when all of this holds, and otherwise the last good
// one stays and the fetch is an error: the answer came from the endpoint that was
// configured, by https, within 5 s; its status is 200, its type JSON where it names
// one, and its size at most 1 MiB; it parses; it has from 1 to 1,000 X.509
// authorities, all of them CA certificates and at least one valid now; and its spiffe_sequence is not
// below that of the one before, Endpoint.Bootstrap included.
//
// The specification says of spiffe_sequence that it "MUST be a monotonically
// increasing integer, and MUST be changed whenever the contents of the bundle are
// updated". So a lower number is refused, and none where there was one. A bundle
// with the number at hand and other contents breaks the second rule, and nothing
// says which of the two is older; then the most recently retrieved counts, as it
// does where there are no numbers. A publisher that forgets to count should not be
// unreachable after its next rotation.
//
// Redirects are followed within the host of the endpoint, at most 3; the
// specification lets an operator be as strict as that.
package fedspiffe
