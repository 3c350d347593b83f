package fedconfig_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedconfig"
)

type noAnchors struct{}

func (noAnchors) FetchAnchor(context.Context, string) (fedhttp.Anchor, error) {
	return fedhttp.Anchor{}, errors.ErrUnsupported
}

var lineEnd = regexp.MustCompile(`\r\n|\r|\n`)

// FuzzParse: whatever a file has, there are peers that a Transport takes, or
// faults that have their places in the file; and the same ones each time.
func FuzzParse(f *testing.F) {
	example, err := os.ReadFile("testdata/peers.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		string(example), everything, manyFaults, "", "\uFEFF# x\r\n", "peers: &a [*a, {<<: *a}]", "peers: !!map {}", "--- \n...\n---\n", "peers:\r- id: \"a\\\n  b\"\n",
		`{"peers": [{"id": "${HOME}", "origins": ["https://${NO_SUCH_VARIABLE}", "$$"]}]}`, "peers: [{id: é, origins: [http://é, https://[::1]:0]}]",
		"peers: [{id: a, origins: [https://a], routes: [{pattern: /{a}/b}, {pattern: '/b/{c}'}], signals: {correlation_prefixes: {\"a\\\"b,\": policy}}}]",
		"? |\n  a\n: >-\n b\n", "peers: [{id: a, origins: [https://a], retry: {min_backoff: 9223372036854775807ns, budget_ratio: 1e999}}]",
	} {
		f.Add("p.yaml", []byte(seed))
		f.Add("p.json", []byte(seed))
	}
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		peers, err := fedconfig.Parse(name, data)
		if err == nil {
			transport, err := fedhttp.NewTransport(fedhttp.Config{Peers: peers, Anchors: noAnchors{}, MeterProvider: noop.NewMeterProvider()})
			if err != nil {
				t.Fatalf("Parse accepted what NewTransport refuses: %v", err)
			}
			_ = transport.Close()
			return
		}
		var faults *fedconfig.Error
		if !errors.As(err, &faults) || len(faults.Faults) == 0 || peers != nil {
			t.Fatalf("peers %v, error %#v", peers, err)
		}
		if _, again := fedconfig.Parse(name, data); again == nil || again.Error() != err.Error() {
			t.Errorf("first:\n%v\nthen:\n%v", err, again)
		}
		lines := lineEnd.Split(strings.TrimPrefix(string(data), "\uFEFF"), -1)
		line, column := 1, 1
		for _, fault := range faults.Faults {
			if fault.Line < 1 || fault.Line > len(lines) || fault.Column < 1 || fault.Column > 1+utf8.RuneCountInString(lines[fault.Line-1]) {
				t.Errorf("no such place in the file: %v", fault)
			}
			if (fault.Line < line || fault.Line == line && fault.Column < column) && len(faults.Faults) < 1001 {
				t.Errorf("not in the order of the file: %v", err)
			}
			line, column = fault.Line, fault.Column
			said := fault.Field + fault.Problem
			if fault.Problem == "" || fault.File != name || strings.ContainsFunc(said, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("fault %+q", fault)
			}
		}
	})
}
