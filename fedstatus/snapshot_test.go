package fedstatus

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fedhttp/fedhttp"
)

var update = flag.Bool("fedstatus.update", false, "write testdata/status.json anew")

var noon = time.Date(2026, time.March, 4, 12, 0, 0, 0, time.FixedZone("CET", 3600))

// TestJSON holds the JSON to the letter: it is what other programs read.
func TestJSON(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	if err := write(&got, typeJSON, snapshot(aDay(noon), noon)); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/status.json"
	if *update {
		var indented bytes.Buffer
		if err := json.Indent(&indented, got.Bytes(), "", "  "); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, indented.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decoded[any](t, want), decoded[any](t, got.Bytes())); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	// And it can be read back.
	if diff := cmp.Diff(snapshot(aDay(noon), noon), decoded[Status](t, got.Bytes())); diff != "" {
		t.Errorf("decoded: -want +got\n%s", diff)
	}
}

func decoded[E any](t *testing.T, raw []byte) E {
	t.Helper()
	var e E
	if err := json.Unmarshal(raw, &e); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return e
}

// TestJSONNames: names are in snake case, and durations say their unit.
func TestJSONNames(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`^[a-z]+(_[a-z]+)*(,omitempty|,omitzero)?$`)
	var check func(reflect.Type)
	check = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Slice:
			check(typ.Elem())
		case reflect.Struct:
			for f := range typ.Fields() {
				tag := f.Tag.Get("json")
				switch isTime := f.Type == reflect.TypeFor[time.Time](); {
				case !name.MatchString(tag):
					t.Errorf("%v.%s is %q", typ, f.Name, tag)
				case f.Type.Kind() == reflect.Float64 && !strings.HasSuffix(tag, "_seconds"):
					t.Errorf("%v.%s is %q", typ, f.Name, tag)
				case isTime && tag != "at" && !strings.HasSuffix(tag, ",omitzero"):
					t.Errorf("%v.%s is %q", typ, f.Name, tag)
				case !isTime:
					check(f.Type)
				}
			}
		}
	}
	check(reflect.TypeFor[Status]())
}

func TestProblems(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*peerState)
		want   []Problem
	}{
		"none":               {func(*peerState) {}, []Problem{}},
		"breaker off":        {func(p *peerState) { p.Breaker = "off" }, []Problem{}},
		"tasks are held":     {func(p *peerState) { p.Held = 9 }, []Problem{}},
		"anchor ends later":  {func(p *peerState) { p.AnchorExpiresAt = noon.Add(1) }, []Problem{}},
		"budget left":        {func(p *peerState) { p.DenialsLeft = 1 }, []Problem{}},
		"open":               {func(p *peerState) { p.Breaker = "open" }, []Problem{ProblemBreakerOpen}},
		"anchor ends now":    {func(p *peerState) { p.AnchorExpiresAt = noon }, []Problem{ProblemAnchorExpired}},
		"budget spent":       {func(p *peerState) { p.DenialsLeft = 0 }, []Problem{ProblemDenialBudgetSpent}},
		"escalations":        {func(p *peerState) { p.recently = 1 }, []Problem{ProblemEscalations}},
		"old escalations":    {func(p *peerState) { p.last = noon }, []Problem{}},
		"half-open":          {func(p *peerState) { p.Breaker = "half-open" }, []Problem{ProblemBreakerHalfOpen}},
		"degraded":           {func(p *peerState) { p.Degraded = true }, []Problem{ProblemDegraded}},
		"last fetch failed":  {func(p *peerState) { p.AnchorError = "x" }, []Problem{ProblemAnchorRefreshFailed}},
		"open, not believed": {func(p *peerState) { p.Breaker, p.Degraded = "open", true }, []Problem{ProblemBreakerOpen, ProblemDegraded}},
	} {
		p := peerState{PeerStatus: &fedhttp.PeerStatus{Breaker: "closed", DenialsLeft: -1}}
		test.change(&p)
		if diff := cmp.Diff(test.want, problemsOf(&p, noon)); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}

// TestPeerEscalations: a peer needs attention for an hour after its last escalation,
// whatever becomes of the other peers.
func TestPeerEscalations(t *testing.T) {
	t.Parallel()
	ago := func(peer string, d time.Duration) fedhttp.Escalation {
		return fedhttp.Escalation{At: noon.Add(-d), Decision: fedhttp.Decision{Peer: peer}}
	}
	src := stub{
		peers: []fedhttp.PeerStatus{{ID: "none", DenialsLeft: -1}, {ID: "old", DenialsLeft: -1}, {ID: "new", DenialsLeft: -1}},
		escalations: []fedhttp.Escalation{
			ago("nobody", 0), ago("new", 3*time.Minute), ago("new", time.Hour-time.Nanosecond), ago("new", time.Hour), ago("old", time.Hour), ago("old", 2*time.Hour),
		},
	}
	s := snapshot(src, noon)
	last := noon.Add(-3 * time.Minute).UTC()
	if s.Summary.NeedAttention != 1 || s.Summary.RecentEscalations != 2 || !s.Summary.LastEscalationAt.Equal(last) {
		t.Errorf("%+v", s.Summary)
	}
	want := []Peer{
		{ID: "new", Problems: []Problem{ProblemEscalations}, RecentEscalations: 2, LastEscalationAt: last},
		{ID: "none", Problems: []Problem{}},
		{ID: "old", Problems: []Problem{}, LastEscalationAt: noon.Add(-time.Hour).UTC()},
	}
	for i := range want {
		want[i].DenialsLeft, want[i].Origins = -1, []string{}
	}
	if diff := cmp.Diff(want, s.Peers); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	page := rendered(t, typeHTML, src)
	for _, want := range []string{
		"<strong>1 of 3 peers need attention</strong>: 1 with escalations (2, the last 3 min ago).",
		`<span class="badge bad">2 escalations</span>`,
		`<a href="#escalations">last escalation</a> <time datetime="` + last.Format(time.RFC3339) + `">3 min ago, `,
		`<a href="#escalations">last escalation</a> <time datetime="` + last.Add(-57*time.Minute).Format(time.RFC3339) + `">1 h ago, `,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("lacks %q", want)
		}
	}
}

// TestPeerEscalationsReplaced: a peer with many escalations does not hide that another has one.
func TestPeerEscalationsReplaced(t *testing.T) {
	t.Parallel()
	at := noon.Add(-3 * time.Minute)
	src := stub{peers: []fedhttp.PeerStatus{
		{ID: "old", DenialsLeft: -1, LastEscalationAt: noon.Add(-time.Hour)}, {ID: "many", DenialsLeft: -1, LastEscalationAt: noon}, {ID: "one", DenialsLeft: -1, LastEscalationAt: at},
	}}
	for range maxRecent {
		src.escalations = append(src.escalations, fedhttp.Escalation{At: noon, Decision: fedhttp.Decision{Peer: "many"}})
	}
	s := snapshot(src, noon)
	for i, want := range []Peer{
		{ID: "many", RecentEscalations: maxRecent, LastEscalationAt: noon.UTC(), Problems: []Problem{ProblemEscalations}},
		{ID: "one", RecentEscalations: 1, LastEscalationAt: at.UTC(), Problems: []Problem{ProblemEscalations}},
		{ID: "old", LastEscalationAt: noon.Add(-time.Hour).UTC(), Problems: []Problem{}},
	} {
		want.DenialsLeft, want.Origins = -1, []string{}
		if diff := cmp.Diff(want, s.Peers[i]); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
}

// TestOrder: what is worst is at the top, and what waits longest.
func TestOrder(t *testing.T) {
	t.Parallel()
	src := stub{peers: []fedhttp.PeerStatus{
		{ID: "well 1", DenialsLeft: -1, HeldTasks: []fedhttp.HeldStatus{{Capability: "2nd", OldestFor: 8}, {Capability: "4th", OldestFor: 1}}},
		{ID: "refresh failed", DenialsLeft: -1, AnchorError: "x"},
		{ID: "open", DenialsLeft: -1, Breaker: "open", HeldTasks: []fedhttp.HeldStatus{{Capability: "1st", OldestFor: 9}, {Capability: "3rd", OldestFor: 7}}},
		{ID: "well 2", DenialsLeft: -1},
		{ID: "degraded", DenialsLeft: -1, Degraded: true},
	}}
	var ids, capabilities []string
	s := snapshot(src, noon)
	for _, p := range s.Peers {
		ids = append(ids, p.ID)
	}
	for _, h := range s.HeldKeys {
		capabilities = append(capabilities, h.Capability)
	}
	if diff := cmp.Diff([]string{"open", "degraded", "refresh failed", "well 1", "well 2"}, ids); diff != "" {
		t.Errorf("peers: -want +got\n%s", diff)
	}
	if diff := cmp.Diff([]string{"1st", "2nd", "3rd", "4th"}, capabilities); diff != "" {
		t.Errorf("keys: -want +got\n%s", diff)
	}
}

// TestBounds: a page is bounded, whatever there is, and counts what it omits.
func TestBounds(t *testing.T) {
	t.Parallel()
	var src stub
	for i := range 10_000 {
		src.peers = append(src.peers, fedhttp.PeerStatus{ID: fmt.Sprint("peer ", i), Breaker: "closed", DenialsLeft: -1, Denials: 1, InFlight: 1})
	}
	sick := &src.peers[9_999]
	sick.Breaker = "open"
	for i := range 100 {
		sick.Origins = append(sick.Origins, fmt.Sprintf("https://%d.example", i))
	}
	// The longest wait of all is in the list that comes last.
	for i := range 20_000 {
		p := &src.peers[i%3]
		p.Held++
		p.HeldTasks = append(p.HeldTasks, fedhttp.HeldStatus{Capability: fmt.Sprint("capability ", i), Tasks: 1, OldestFor: time.Duration(20_000+i) * time.Second})
	}
	for range 1000 {
		src.escalations = append(src.escalations, fedhttp.Escalation{At: noon, Decision: fedhttp.Decision{Peer: "peer 9999", Evidence: make([]fedhttp.Evidence, 1000)}})
		src.denials = append(src.denials, fedhttp.Denial{})
	}
	s := snapshot(src, noon)
	want := Summary{
		Peers: 10_000, NeedAttention: 1, Problems: s.Summary.Problems, RecentEscalations: maxRecent, LastEscalationAt: noon.UTC(),
		Held: 20_000, HeldKeys: 20_000, OldestHeldSeconds: 39_999,
		InFlight: 10_000, Denials: 10_000,
	}
	if diff := cmp.Diff(want, s.Summary); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if s.Peers[0].ID != "peer 9999" || s.Peers[0].RecentEscalations != maxRecent || s.Peers[0].OriginsOmitted != 100-maxOrigins {
		t.Errorf("at the top: %+v", s.Peers[0])
	}
	if len(s.Peers) != maxPeers || s.PeersOmitted != 10_000-maxPeers {
		t.Errorf("%d peers, %d omitted", len(s.Peers), s.PeersOmitted)
	}
	if len(s.HeldKeys) != maxHeldKeys || s.HeldKeysOmitted != 20_000-maxHeldKeys {
		t.Errorf("%d keys, %d omitted", len(s.HeldKeys), s.HeldKeysOmitted)
	}
	if first, last := s.HeldKeys[0], s.HeldKeys[maxHeldKeys-1]; first.Capability != "capability 19999" || last.Capability != "capability 19000" {
		t.Errorf("keys from %q to %q", first.Capability, last.Capability)
	}
	if len(s.Escalations) != maxRecent || len(s.Denials) != maxRecent || len(s.Escalations[0].Evidence) != maxEvidence {
		t.Errorf("%d escalations with %d pieces of evidence, %d denials", len(s.Escalations), len(s.Escalations[0].Evidence), len(s.Denials))
	}
	for _, format := range []string{typeHTML, typeJSON} {
		var body bytes.Buffer
		if err := write(&body, format, s); err != nil || body.Len() > 3<<20 {
			t.Errorf("%s: %d bytes, %v", format, body.Len(), err)
		}
		if omitted := []byte("9000"); !bytes.Contains(body.Bytes(), omitted) {
			t.Errorf("%s does not say that %s peers are omitted", format, omitted)
		}
	}
}

// TestTimes: a time that JSON cannot write does not take the page down.
func TestTimes(t *testing.T) {
	t.Parallel()
	last := time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)
	for _, test := range []struct{ in, want time.Time }{
		{time.Time{}, time.Time{}},
		{noon.Add(1_999_999), noon.Add(time.Millisecond).UTC()},
		{time.Unix(1<<50, 0), last},
		{time.Unix(math.MaxInt64>>1, 0), last},
		{time.Unix(-1<<50, 0), time.Time{}},
		{time.Date(2026, 1, 1, 0, 0, 0, 0, time.FixedZone("odd", 30*3600+7)), time.Date(2025, 12, 30, 17, 59, 53, 0, time.UTC)},
	} {
		got := timeOf(test.in)
		if !got.Equal(test.want) || got.Location() != time.UTC {
			t.Errorf("%v: %v, want %v", test.in, got, test.want)
		}
		p := filled[fedhttp.PeerStatus]("x")
		p.AnchorExpiresAt, p.AnchorIssuedAt, p.AnchorAge = test.in, test.in, math.MaxInt64
		e := fedhttp.Escalation{At: test.in, Kind: 200, Decision: fedhttp.Decision{Outcome: 200, Reason: 200, Delivery: 200, Basis: 200}}
		src := stub{peers: []fedhttp.PeerStatus{p}, escalations: []fedhttp.Escalation{e}, denials: []fedhttp.Denial{{At: test.in, Until: test.in}}}
		for _, format := range []string{typeHTML, typeJSON} {
			if err := write(new(bytes.Buffer), format, snapshot(src, noon)); err != nil {
				t.Errorf("%v: %s: %v", test.in, format, err)
			}
		}
	}
}

// TestEveryField: every field of the JSON is filled from what the library tells.
func TestEveryField(t *testing.T) {
	t.Parallel()
	src := saying("x")
	src.escalations[0].At = noon
	s := snapshot(src, noon)
	check := func(v any, empty ...string) {
		t.Helper()
		for f, value := range reflect.ValueOf(v).Fields() {
			isEmpty := value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0
			if isEmpty != slices.Contains(empty, f.Name) {
				t.Errorf("%T.%s is %v", v, f.Name, value)
			}
		}
	}
	check(s.Peers[0], "OriginsOmitted")
	check(s.Peers[0].Anchor)
	check(s.HeldKeys[0])
	check(s.Escalations[0])
	check(s.Denials[0], "Holds")
}
