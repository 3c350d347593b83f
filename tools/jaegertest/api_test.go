package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"
)

// service is what the example calls itself.
const service = "fedhttp-example"

// maxTraces is how many Jaeger is asked for: more than there are, and as many
// as its memory holds.
const maxTraces = 100_000

// api asks Jaeger for the traces of the example that began in a span of time.
type api struct {
	base     string
	from, to time.Time
}

// get puts the answer to a query into a value, as JSON.
func (a api) get(ctx context.Context, path string, query url.Values, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("%s: %s: %s", path, resp.Status, said)
	}
	dec := json.NewDecoder(resp.Body)
	dec.UseNumber() // an int64 stays one
	return dec.Decode(into)
}

// uiTrace and those below are what /api/traces answers, the UI's form.
type uiTrace struct {
	TraceID   string                                  `json:"traceID"`
	Spans     []uiSpan                                `json:"spans"`
	Processes map[string]struct{ ServiceName string } `json:"processes"`
}

type uiSpan struct {
	TraceID, SpanID, OperationName, ProcessID string

	References []uiReference
	Tags       []uiTag
	Warnings   []string
}

type uiReference struct{ RefType, TraceID, SpanID string }

type uiTag struct {
	Key, Type string
	Value     any
}

// traces searches through the API of the UI, for those with all of the tags.
func (a api) traces(ctx context.Context, tags map[string]string) ([]uiTrace, error) {
	query := url.Values{
		"service": {service},
		"limit":   {strconv.Itoa(maxTraces)},
		"start":   {strconv.FormatInt(a.from.UnixMicro(), 10)},
		"end":     {strconv.FormatInt(a.to.UnixMicro(), 10)},
	}
	if tags != nil {
		all, err := json.Marshal(tags)
		if err != nil {
			return nil, err
		}
		query.Set("tags", string(all))
	}
	var answer struct {
		Data   []uiTrace
		Errors []struct{ Msg string }
	}
	if err := a.get(ctx, "/api/traces", query, &answer); err != nil {
		return nil, err
	}
	if len(answer.Errors) > 0 {
		return nil, fmt.Errorf("/api/traces: %s", answer.Errors[0].Msg)
	}
	return answer.Data, nil
}

// spans searches through version 3 of the API, which answers in OTLP, for the
// traces as they were stored.
func (a api) spans(ctx context.Context) ([]span, error) {
	var answer struct{ Result json.RawMessage }
	err := a.get(ctx, "/api/v3/traces", url.Values{
		"query.service_name":   {service},
		"query.raw_traces":     {"true"},
		"query.num_traces":     {strconv.Itoa(maxTraces)},
		"query.start_time_min": {a.from.UTC().Format(time.RFC3339Nano)},
		"query.start_time_max": {a.to.UTC().Format(time.RFC3339Nano)},
	}, &answer)
	if err != nil {
		return nil, err
	}
	td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(answer.Result)
	if err != nil {
		return nil, fmt.Errorf("/api/v3/traces: %w", err)
	}
	return spansOf(td), nil
}
