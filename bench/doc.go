// Package bench measures fedhttp beside bare net/http and what it replaces:
// otelhttp, retryablehttp, gobreaker, failsafe-go, and chains of them.
//
// What is measured is here, so that the tests can look at it; the benchmarks are
// in the test files, named so that benchstat can compare them (go tool benchstat
// -col /chain). cmd/all runs everything, cmd/report writes docs/benchmarks.md of
// it, and "measure gate" is the part that every change must pass.
package bench
