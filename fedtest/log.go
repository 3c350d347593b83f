package fedtest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"
)

// maxHashed bounds what is hashed of a request body. What is beyond is
// counted only.
const maxHashed = 1 << 20

// Entry is one request in the log of a layer. It is made when the request's
// header has arrived; what is known later (the body, the verdict) is filled in
// before the answer is written, so a client that has its answer finds its
// entry complete.
type Entry struct {
	Time   time.Time
	Method string
	Host   string
	Path   string // without the query
	Query  string
	Header http.Header
	Proto  string // "HTTP/1.1", "HTTP/2.0"
	TLS    bool
	// Remote is the address of the connection's other end: equal for requests
	// that came on one connection. At an engine of its own
	// ([Config].SeparateEngine) that is the routing layer.
	Remote string

	// Task, Client and Capability are what the request is for, see [Config].
	Task, Client, Capability string

	// BodyBytes is how many bytes of the body were read so far, and BodySHA256
	// the hash, in hex, of the first MiB of them; empty until the body was read
	// to its end. The steps and layers of this package read a body whole before
	// they answer; a Step or Handler of the user's own may not, nor does the
	// routing layer where it fails to reach an engine of its own.
	BodyBytes  int64
	BodySHA256 string

	// AskedDigest and AskedEpoch are the policy digest and negotiation epoch that
	// the request named, as it spelled them.
	AskedDigest, AskedEpoch string
	// RanDigest and RanTerms are the policy that the request ran under, and
	// Agreed whether that is one the peer agreed on with the client, not the
	// peer's default. Engine only.
	RanDigest string
	RanTerms  map[string]string
	Agreed    bool

	// Verdict is "allow" or "deny", and empty where there was none (yet). Engine
	// only, as is Reason: why it was denied.
	Verdict, Reason string
	// CorrelationID is the one that the layer gave its answer, if any.
	CorrelationID string
}

// journal is an append-only list of entries. Entries are filled in later, so
// they are changed only by update and handed out only as copies.
type journal struct {
	mu      sync.Mutex
	entries []*Entry
}

func (j *journal) add(e *Entry) *Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, e)
	return e
}

func (j *journal) update(change func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change()
}

// Log returns the requests that reached the layer so far, oldest first.
func (j *journal) Log() []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]Entry, len(j.entries))
	for i, e := range j.entries {
		out[i] = *e
		out[i].Header = e.Header.Clone()
		out[i].RanTerms = maps.Clone(e.RanTerms)
	}
	return out
}

// newEntry describes a request whose header has arrived.
func (p *Peer) newEntry(r *http.Request) *Entry {
	header := r.Header.Clone()
	header.Del(headerExchange)
	return &Entry{
		Time: p.cfg.Now(), Method: r.Method, Host: r.Host, Path: r.URL.Path, Query: r.URL.RawQuery,
		Header: header, Proto: r.Proto, TLS: r.TLS != nil, Remote: r.RemoteAddr,
		Task: p.cfg.Task(r), Client: p.cfg.Client(r), Capability: p.cfg.Capability(r),
		AskedDigest: r.Header.Get(HeaderPolicyDigest), AskedEpoch: r.Header.Get(HeaderNegotiationEpoch),
	}
}

// recordedBody counts and hashes a request body as it is read.
type recordedBody struct {
	io.ReadCloser
	journal *journal
	entry   *Entry
	length  int64 // as the request says; negative: it does not

	mu     sync.Mutex // held while it is read: a proxy may still be at it when its handler goes on
	hash   hash.Hash
	hashed int
	read   int64
}

// recordBody returns the request with a body that is recorded in the entry.
func recordBody(r *http.Request, j *journal, e *Entry) *http.Request {
	body := &recordedBody{ReadCloser: r.Body, journal: j, entry: e, length: r.ContentLength, hash: sha256.New()}
	if r.ContentLength == 0 {
		body.record(nil, true) // such a body may never be read
	}
	r = r.WithContext(r.Context()) // the server's own request keeps its body
	r.Body = body
	return r
}

func (b *recordedBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.ReadCloser.Read(p)
	if end := errors.Is(err, io.EOF); n > 0 || end {
		b.record(p[:n], end)
	}
	return n, err
}

func (b *recordedBody) record(p []byte, end bool) {
	keep := p[:min(len(p), maxHashed-b.hashed)]
	b.hash.Write(keep)
	b.hashed += len(keep)
	b.read += int64(len(p))
	// All of it is its end, which over HTTP/2 may be said later: an engine that has
	// all of it may have answered by then.
	end = end || b.read == b.length
	b.journal.update(func() {
		b.entry.BodyBytes = b.read
		if end {
			b.entry.BodySHA256 = hex.EncodeToString(b.hash.Sum(nil))
		}
	})
}

// drain reads what is left of the request's body. An HTTP/1 server notices
// that its client has gone only once the body was read, and a client that is
// still writing may lose an answer that comes early.
func drain(r *http.Request) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body) // a client that went away is noticed by its context
	}
}
