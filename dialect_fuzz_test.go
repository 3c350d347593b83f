package fedhttp

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/dunglas/httpsfv"
)

// FuzzDialects: whatever comes, every dialect reads it to an end, and what no hop is
// named for decides nothing. Nothing that a forger or an accident can do to an answer
// makes a word for routing of it: breaking its body off, or naming something twice.
// And no hop proves routing behind one that enforces policy.
func FuzzDialects(f *testing.F) {
	for _, row := range dialectRows {
		f.Add(uint8(row.kind-1), row.status, row.header, row.body, uint16(len(row.body)/2))
	}
	f.Fuzz(func(t *testing.T, kind uint8, status int, fields, body string, cut uint16) {
		k := DialectKind(int(kind)%(len(dialectNames)-1) + 1)
		header := headerOf(fields)
		read := func(hops []Hop, body io.Reader) reading {
			table := Signals{Dialects: []Dialect{{Kind: k, Hops: hops}}}.compile(func(string, string, ...any) {})
			a := &reply{status: status, header: header, newConn: true}
			if table.wantsBody(a) {
				ahead := newReadAhead(io.NopCloser(body), func() {})
				ahead.listen(context.Background())
				a.body = ahead.text
			}
			var r reading
			table.readDialects(&r, a)
			for _, e := range r.evidence {
				if e.Source != vocabularies[k].source {
					t.Errorf("%v speaks as %v", k, e.Source)
				}
			}
			return r
		}
		if r := read(nil, strings.NewReader(body)); r.staleAnchor || r.reach != reachUnknown || slices.ContainsFunc(r.evidence, decides) {
			t.Errorf("%v decides without a hop: %+v", k, r)
		}
		whole := read(dialectHops, strings.NewReader(body))
		if k == DialectProxyStatus {
			checkChain(t, header, whole)
		}
		if vocabularies[k].body == nil {
			return
		}
		cutOff := io.MultiReader(strings.NewReader(body[:min(int(cut), len(body))]), iotest.ErrReader(io.ErrUnexpectedEOF))
		if r := read(dialectHops, cutOff); len(r.evidence) > 0 || r.staleAnchor {
			t.Errorf("%v, broken off: %+v", k, r)
		}
		members := membersOf(body)
		for i, m := range members {
			swapped := slices.Concat(members[i:], members[:i])
			if r := read(dialectHops, strings.NewReader(object(swapped))); !slices.Equal(r.evidence, whole.evidence) && len(object(swapped)) < maxBodyRead && len(body) < maxBodyRead {
				t.Errorf("%v, in another order: %+v, want %+v", k, r, whole)
			}
			for j := range members {
				// The name again, in this or other letters, with another's value.
				for _, name := range []string{m.name, strings.ToUpper(m.name), strings.ToLower(m.name)} {
					twice := slices.Insert(slices.Clone(members), j, member{name, members[j].value})
					if r := read(dialectHops, strings.NewReader(object(twice))); len(r.evidence) > len(whole.evidence) {
						t.Errorf("%v, a name twice: %+v, want %+v", k, r, whole)
					}
				}
			}
		}
	})
}

func decides(e Evidence) bool { return e.Ignored == IgnoredNot }

func headerOf(fields string) http.Header {
	header := http.Header{}
	for field := range strings.SplitSeq(fields, "|") {
		if name, value, ok := strings.Cut(field, ": "); ok {
			header.Add(name, value)
		}
	}
	return header
}

// checkChain: where a chain says routing, the hop nearest the origin says so, and
// nobody in it enforces policy, nor signs like that hop.
func checkChain(t *testing.T, header http.Header, r reading) {
	t.Helper()
	if !slices.Contains(r.evidence, Evidence{Source: SourceProxyStatus, Layer: LayerRouting}) {
		return
	}
	list, err := httpsfv.UnmarshalList(header["Proxy-Status"])
	if err != nil || len(list) == 0 {
		t.Fatalf("routing of a field that cannot be read: %q", header["Proxy-Status"])
	}
	hop := func(m httpsfv.Member) *Hop {
		if item, ok := m.(httpsfv.Item); ok {
			return hopOf(item.Value, dialectHops)
		}
		return nil
	}
	first := hop(list[0])
	if first == nil || first.Policy {
		t.Errorf("routing, and the first hop is %+v: %q", first, header["Proxy-Status"])
	}
	for _, m := range list[1:] {
		if h := hop(m); h != nil && (h.Policy || h == first) && !slices.Contains(r.evidence, Evidence{Source: SourceProxyStatus}) {
			t.Errorf("routing behind %+v: %q", h, header["Proxy-Status"])
		}
	}
}

// member is a member of a JSON object, and object the text of several.
type member struct {
	name  string
	value json.RawMessage
}

func membersOf(text string) (members []member) {
	d := json.NewDecoder(strings.NewReader(text))
	if start, err := d.Token(); err != nil || start != json.Delim('{') || !json.Valid([]byte(text)) {
		return nil
	}
	for d.More() && len(members) < 8 {
		name, _ := d.Token()
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil
		}
		members = append(members, member{name.(string), value})
	}
	if d.More() {
		return nil
	}
	return members
}

func object(members []member) string {
	texts := make([]string, len(members))
	for i, m := range members {
		name, _ := json.Marshal(m.name)
		texts[i] = string(name) + ":" + string(m.value)
	}
	return "{" + strings.Join(texts, ",") + "}"
}
