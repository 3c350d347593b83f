package fedtest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// CapabilitiesPath is where a peer serves what it advertises, as a JSON array
// of [Advertisement], sorted by capability.
const CapabilitiesPath = "/.well-known/federation/capabilities"

// Advertisement is a capability and the policy that the peer offers it under.
type Advertisement struct {
	Capability string            `json:"capability"`
	Epoch      uint64            `json:"epoch"`
	Digest     string            `json:"digest"`
	Terms      map[string]string `json:"terms,omitempty"`
}

// Digest returns a policy digest of the terms: equal for equal terms,
// "sha256:" and 64 hex digits.
func Digest(terms map[string]string) string {
	sum := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(terms)) {
		fmt.Fprintf(sum, "%q=%q\n", key, terms[key])
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// agreement is the key of a policy that a client and the peer agreed on.
type agreement struct {
	client, capability, digest string
	epoch                      uint64
}

// Advertise makes the advertisement the current one of its capability. The
// peer is the authority on what it offers, so an older epoch is taken too.
// Advertising is a claim: nothing runs under the policy before [Peer.Agree].
func (p *Peer) Advertise(a Advertisement) {
	a.Terms = maps.Clone(a.Terms)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advertised[a.Capability] = a
}

// Withdraw ends the advertisement of a capability. What was agreed stays.
func (p *Peer) Withdraw(capability string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.advertised, capability)
}

// Advertisements returns what the peer advertises, sorted by capability.
func (p *Peer) Advertisements() []Advertisement {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Advertisement, 0, len(p.advertised))
	for _, capability := range slices.Sorted(maps.Keys(p.advertised)) {
		a := p.advertised[capability]
		a.Terms = maps.Clone(a.Terms)
		out = append(out, a)
	}
	return out
}

// CapabilitiesURL returns the URL of the advertisements: URL plus
// [CapabilitiesPath].
func (p *Peer) CapabilitiesURL() string { return p.URL + CapabilitiesPath }

// Agree records that the peer and the client agreed on the policy. From now on
// the client's requests that name the capability, digest and epoch run under
// its terms; all others run under the peer's default policy. The empty client
// stands for every client.
func (p *Peer) Agree(client string, a Advertisement) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.agreed[agreement{client, a.Capability, a.Digest, a.Epoch}] = maps.Clone(a.Terms)
}

// Revoke ends what Agree recorded for the same client, capability, digest and
// epoch.
func (p *Peer) Revoke(client string, a Advertisement) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.agreed, agreement{client, a.Capability, a.Digest, a.Epoch})
}

// runsUnder sets the policy that a request runs under: the one it names, if
// that is agreed, else the peer's default. An agreement counts whether or not
// its capability is still advertised under it.
func (p *Peer) runsUnder(e *Entry) {
	e.RanDigest, e.RanTerms, e.Agreed = p.cfg.DefaultDigest, p.cfg.DefaultTerms, false
	if e.AskedDigest == "" {
		return
	}
	epoch, err := strconv.ParseUint(e.AskedEpoch, 10, 64)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, client := range []string{e.Client, ""} {
		if terms, ok := p.agreed[agreement{client, e.Capability, e.AskedDigest, epoch}]; ok {
			e.RanDigest, e.RanTerms, e.Agreed = e.AskedDigest, terms, true
			return
		}
	}
}

func (p *Peer) serveCapabilities(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, p.Advertisements())
}

func defaultTask(r *http.Request) string {
	if id := r.Header.Get(HeaderTask); id != "" {
		return id
	}
	return r.URL.Path
}

func defaultClient(r *http.Request) string {
	if client := r.Header.Get(HeaderClient); client != "" {
		return client
	}
	return DefaultClient
}

func defaultCapability(r *http.Request) string {
	if capability := r.Header.Get(HeaderCapability); capability != "" {
		return capability
	}
	segment, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return segment
}

func defaultHandler(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"status":"ok"}`+"\n")
}
