// Package spiretest has the test of fedspiffe against SPIRE: two trust domains
// on loopback, each with a spire-server and a spire-agent, federated with each
// other, and an authority that is rotated. It has no code but tests. The
// programs are built by tools/spire; `make test-spire` does both.
package spiretest
