// Package observability checks the dashboard, the alert rules and the README of
// docs/observability against what fedhttp exports. It has tests only.
//
// They run the example's job with Prometheus' exporter, and look each metric,
// label and label value that those files name up in what it wrote.
package observability
