package main

import (
	"bytes"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// hostile is what a peer would put into a page of ours.
var hostile = []string{
	`<script>document.title="owned"</script>`,
	`"><img src=https://evil.example/x.png onerror="document.title='owned'">`,
	`</style></bdi></details><iframe src="javascript:alert(1)"></iframe>`,
	`' onmouseover='document.title=1' {{.}} <!--`,
	`javascript:document.title="owned"`,
	"\u202eturned\u2066around",
	"no-spaces-" + string(bytes.Repeat([]byte("x"), 500)),
}

var sampleStart = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// sampleSpan is a span of trace number t, in ms after the start.
func sampleSpan(t, id, parent byte, name string, from, to int) tracetest.SpanStub {
	at := func(ms int) time.Time { return sampleStart.Add(time.Duration(ms) * time.Millisecond) }
	s := tracetest.SpanStub{
		Name: name, SpanContext: sampleContext(t, id), SpanKind: trace.SpanKindInternal,
		StartTime: at(from), EndTime: at(to),
	}
	if parent != 0 {
		s.Parent = sampleContext(t, parent)
	}
	return s
}

func sampleContext(t, id byte) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{t}, SpanID: trace.SpanID{t, id}, TraceFlags: trace.FlagsSampled,
	})
}

// sampleTraces are three calls: one whose sizes are easy to tell in a picture,
// with all roles, another call in its course, a link and an event, one that is
// hostile in all parts, and one that took no time.
func sampleTraces() *traces {
	call := sampleSpan(1, 1, 0, "federation records", 0, 380) // a response is read on after it
	call.Attributes = []attribute.KeyValue{
		attribute.String("federation.capability.id", "records"), attribute.String("federation.outcome", "delivered"),
		attribute.Int("federation.attempts", 2), attribute.Int("federation.refreshes", 1), attribute.Int("federation.held_ms", 100),
		attribute.Bool("federation.escalated", false), attribute.String("federation.peer.id", "org-b"),
	}
	held := sampleSpan(1, 2, 1, "federation.hold", 0, 100)
	other := sampleSpan(1, 6, 1, "federation request", 20, 80)
	other.Attributes = []attribute.KeyValue{attribute.Int("federation.attempts", 1), attribute.String("federation.peer.id", "org-c")}
	sent := sampleSpan(1, 7, 6, "POST", 40, 80)
	sent.SpanKind = trace.SpanKindClient
	first := sampleSpan(1, 3, 1, "POST", 100, 300)
	first.SpanKind = trace.SpanKindClient
	first.Status = sdktrace.Status{Code: codes.Error, Description: "stale"}
	first.Attributes = []attribute.KeyValue{
		attribute.Int("http.response.status_code", 403), attribute.StringSlice("federation.evidence", []string{"header=routing"}),
	}
	first.Events = []sdktrace.Event{{Name: "first byte", Time: sampleStart.Add(200 * time.Millisecond)}}
	refresh := sampleSpan(1, 4, 1, "federation.anchor.refresh", 200, 240)
	second := sampleSpan(1, 5, 1, "POST", 300, 400)
	second.SpanKind = trace.SpanKindClient
	second.Links = []sdktrace.Link{
		{SpanContext: first.SpanContext, Attributes: []attribute.KeyValue{attribute.String("federation.link", "resend_of")}},
		{SpanContext: sampleContext(9, 9), Attributes: []attribute.KeyValue{attribute.String("elsewhere", "yes")}},
	}

	bad := sampleSpan(2, 1, 0, hostile[0], 0, 10)
	bad.Status = sdktrace.Status{Code: codes.Error, Description: hostile[1]}
	bad.Attributes = []attribute.KeyValue{
		attribute.String("federation.capability.id", hostile[2]), attribute.String("federation.outcome", "rejected"),
		attribute.String("federation.reason", hostile[0]), attribute.StringSlice("federation.evidence", hostile),
		attribute.String("federation.peer.id", hostile[0]),
	}
	for _, h := range hostile {
		bad.Attributes = append(bad.Attributes, attribute.String(h, h))
		bad.Events = append(bad.Events, sdktrace.Event{Name: h, Time: sampleStart.Add(-time.Hour), Attributes: []attribute.KeyValue{attribute.String(h, h)}})
		bad.Links = append(bad.Links, sdktrace.Link{SpanContext: sampleContext(1, 1), Attributes: []attribute.KeyValue{attribute.String("federation.link", h), attribute.String(h, h)}})
	}

	badToo := sampleSpan(2, 2, 1, hostile[5], 5, 6)
	badToo.Attributes = []attribute.KeyValue{attribute.String("federation.peer.id", hostile[6]), attribute.String("federation.reason", hostile[1])}

	instant := sampleSpan(3, 1, 0, "federation lookup", 0, 0)
	instant.Attributes = []attribute.KeyValue{attribute.String("federation.capability.id", "lookup"), attribute.String("federation.outcome", "unknown_peer")}

	t := newTraces()
	for _, s := range (tracetest.SpanStubs{second, refresh, first, sent, other, held, call, badToo, bad, instant}).Snapshots() {
		t.spans.OnEnd(s)
	}
	return t
}

// sampleResult has figures whose bars are easy to tell in a picture.
func sampleResult() result {
	var r result
	r.figures.Boundary.Naive = boundaryFigures{Tasks: 200, Denials: 480, MaxSendsPerDeniedTask: 4, Recovered: 0, Quarantined: true}
	r.figures.Boundary.Fedhttp = boundaryFigures{Tasks: 200, Denials: 120, MaxSendsPerDeniedTask: 1, Recovered: 80}
	r.figures.Preflight.Naive = preflightFigures{Tasks: 1140, Sends: 1000, WrongPolicy: 1000, Pending: 50}
	r.figures.Preflight.Fedhttp = preflightFigures{Tasks: 1140, Sends: 250, RightPolicy: 1, Pending: 51}
	r.naiveBoundary.nextTask, r.fedBoundary.nextTask = "refused: "+hostile[1], "ran"
	return r
}

// samplePage is a page of the samples, in a file and as text.
func samplePage(t *testing.T, ui jaeger) (file, text string) {
	t.Helper()
	traces := sampleTraces()
	t.Cleanup(traces.close)
	file = t.TempDir() + "/report.html"
	f, err := createFile(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.discard()
	var b bytes.Buffer
	p := newPage(sampleResult(), traces.examples(), ui, sampleStart, time.Second)
	if err := writePage(&b, p); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := f.commit(); err != nil {
		t.Fatal(err)
	}
	return file, b.String()
}
