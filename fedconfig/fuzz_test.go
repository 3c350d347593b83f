package fedconfig_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
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

// marked are variables that a file may refer to, and said is what no fault may
// say then: what they hold, and what becomes of it.
var (
	marked = map[string]string{
		"M": "m4rk3r", "LONG": strings.Repeat("m4rk3r", 60), "HOST": "M4rk3r.example", "SITE": "http://m4rk3r.example", "PATH1": "/{m4rk3r}/a",
		"N": "-7317731", "WAIT": "7317731s", "LINES": "m4rk3r\n: \"m4rk3r",
	}
	said = []string{"m4rk3r", "7317731", "2032h"}
)

// FuzzParse: whatever a file has, there are peers that a Transport takes, or
// faults that have their places in the file; the same ones each time, with the
// same places in what follows another line, and nothing from the environment.
func FuzzParse(f *testing.F) {
	for name, value := range marked {
		f.Setenv(name, value)
	}
	example, err := os.ReadFile("testdata/peers.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		string(example), everything, manyFaults, "", "\uFEFF# x\r\n", "peers: &a [*a, {<<: *a}]", "peers: !!map {}", "--- \n...\n---\n", "peers:\r- id: \"a\\\n  b\"\n",
		`{"peers": [{"id": "${HOME}", "origins": ["https://${NO_SUCH_VARIABLE}", "$$"]}]}`, "peers: [{id: é, origins: [http://é, https://[::1]:0]}]",
		"peers: [{id: a, origins: [https://a], routes: [{pattern: /{a}/b}, {pattern: '/b/{c}'}], signals: {correlation_prefixes: {\"a\\\"b,\": policy}}}]",
		"peers: [{id: '${LONG}', origins: ['https://${HOST}', '${SITE}', 'x${M}'], hold: {max: '${N}', max_wait: '-${WAIT}'}, retry: {min_backoff: '${WAIT}'}}, {id: '${M}', origins: ['https://${HOST}:443']}]",
		"peers: [{id: '${LONG}', origins: ['https://${LONG}']}]", "version: ${N}\npeers: [{id: a, origins: [https://a], routes: [{pattern: '${PATH1}'}, {pattern: '/{b}/a'}, {pattern: '{${M}'}], signals: {receipt: '${LINES}', failure_statuses: ['${N}', 1], correlation_prefixes: {'': policy, b: '${M}'}}}]",
		"? |\n  a\n: >-\n b\n", "peers: [{id: a, origins: [https://a], retry: {min_backoff: 9223372036854775807ns, budget_ratio: 1e999}}]",
	} {
		f.Add("p.yaml", []byte(seed))
		f.Add("p.json", []byte(seed))
	}
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		peers, err := fedconfig.Parse(name, data)
		if err == nil {
			transport, err := fedhttp.NewTransport(fedhttp.Config{Peers: peers, Book: &fedhttp.PolicyBook{}, Anchors: noAnchors{}, MeterProvider: noop.NewMeterProvider()})
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
		checkSaid(t, data, err)
		checkShifted(t, name, data, faults)
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

// checkSaid: what variables hold is not in the error, unless the file has it.
func checkSaid(t *testing.T, data []byte, err error) {
	t.Helper()
	for _, secret := range said {
		if strings.Contains(strings.ToLower(err.Error()), secret) && !strings.Contains(strings.ToLower(string(data)), secret[:3]) {
			t.Errorf("%q is in %v", secret, err)
		}
	}
}

// checkShifted: with an empty line before it, a file has the same faults a line
// further down. One that has lost its place stays where it is.
func checkShifted(t *testing.T, name string, data []byte, faults *fedconfig.Error) {
	t.Helper()
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	if said := faults.Error(); len(data) >= 1<<20 || strings.Contains(said, "is empty; want peers") || strings.Contains(said, "; want YAML") {
		return // of the file as a whole, or where the parser of YAML says
	}
	var again *fedconfig.Error
	if _, err := fedconfig.Parse(name, slices.Concat([]byte("\n"), data)); !errors.As(err, &again) || len(again.Faults) != len(faults.Faults) {
		t.Fatalf("%v\nafter a line:\n%v", faults, err)
	}
	for i, was := range faults.Faults {
		is := again.Faults[i]
		if is.Line != was.Line+1 || is.Column != was.Column || is.Field != was.Field {
			t.Errorf("%v\nafter a line: %v", was, is)
		}
	}
}
