package main

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"text/tabwriter"
)

// jaegerPort is where Jaeger serves its pages, unless it is told otherwise.
const jaegerPort = "16686"

// jaeger is the URL of Jaeger's pages; empty where no traces were sent to any.
type jaeger string

// jaegerOf returns where the pages are of the Jaeger that takes traces at
// address (HOST:PORT): at ui, unless that is empty.
func jaegerOf(address, ui string) jaeger {
	if ui != "" {
		return jaeger(strings.TrimRight(ui, "/"))
	}
	host, _, _ := net.SplitHostPort(address) // parse has looked at it
	return jaeger("http://" + net.JoinHostPort(host, jaegerPort))
}

// search is the page that finds all of the job's traces.
func (j jaeger) search() string { return string(j) + "/search?service=" + url.QueryEscape(serviceName) }

// trace is the page of the trace that the span belongs to.
func (j jaeger) trace(s *span) string {
	return string(j) + "/trace/" + s.SpanContext().TraceID().String()
}

// print writes the links: to all traces, and to one of each kind of decision.
func (j jaeger) print(w io.Writer, examples []*span) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "\nIN JAEGER\nall traces\t%s\n", j.search())
	for _, root := range examples {
		fmt.Fprintf(t, "%s\t%s\n", root.kind(), j.trace(root))
	}
	return t.Flush()
}
