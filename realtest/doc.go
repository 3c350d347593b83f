// Package realtest holds the tests of fedhttp against real servers: nginx and
// HAProxy as Debian has them, Caddy and OPA as libraries. It has no code but
// tests, and is a module of its own because those libraries are large.
//
// The situations are those of ../testdata/captures, and so are the verdicts:
// what the root module's tests make of the recorded bytes must hold for the
// servers themselves.
package realtest
