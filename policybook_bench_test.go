package fedhttp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// bookShape is how many keys a benchmark has, as peers with capabilities each.
type bookShape struct {
	name                string
	peers, capabilities int
}

var (
	oneMillion = bookShape{"1M", 10_000, 100}
	bookShapes = []bookShape{
		{"1k", 10, 100}, {"100k", 1_000, 100}, oneMillion,
		{"1x1M", 1, 1_000_000}, {"1Mx1", 1_000_000, 1},
	}
)

func (s bookShape) keys() int { return s.peers * s.capabilities }

// key makes its strings anew, as a feed does that decodes them.
func (s bookShape) key(i int) PolicyKey {
	return PolicyKey{
		Peer:       fmt.Sprintf("registry-%06d.example", i/s.capabilities),
		Capability: fmt.Sprintf("capability-%07d", i%s.capabilities),
		Epoch:      7,
	}
}

// digest is one of a thousand.
func (s bookShape) digest(i int) string { return fmt.Sprintf("sha256:%064x", i%1000) }

type authorizer interface {
	Authorize(peer string, task Task, defaults Terms, now time.Time) (Authorization, error)
}

// writeBook writes as a feed does that brings a new epoch, half a write each. It
// is no method of a type around the book: through one the reads would be called
// in two steps, and be that much slower.
func writeBook(b *PolicyBook, key PolicyKey, digest string) {
	b.Accept(Policy{PolicyKey: key, Digest: digest})
	if err := b.Advertise(Advertisement{key, digest}); err != nil && !errors.Is(err, ErrStaleEpoch) {
		panic(err)
	}
}

// rwMutexMap is what a PolicyBook is measured against. It does the least that
// could be done: no older epochs, no terms, no negotiations.
type rwMutexMap struct {
	mu sync.RWMutex
	m  map[watchKey]rwMutexEntry
}

type rwMutexEntry struct {
	digest   string
	epoch    uint64
	accepted bool
}

func (m *rwMutexMap) Authorize(peer string, task Task, _ Terms, _ time.Time) (Authorization, error) {
	m.mu.RLock()
	e := m.m[watchKey{peer, task.Capability}]
	m.mu.RUnlock()
	if !e.accepted {
		return Authorization{}, errNotAccepted
	}
	return Authorization{e.digest, e.epoch, BasisAccepted}, nil
}

func (m *rwMutexMap) write(key PolicyKey, digest string) {
	m.mu.Lock()
	m.m[watchKey{key.Peer, key.Capability}] = rwMutexEntry{digest, key.Epoch, true}
	m.mu.Unlock()
}

// benchBooks are a book and a map of the same keys, and these keys in random
// order, in strings of their own.
type benchBooks struct {
	shape   bookShape
	book    *PolicyBook
	rwMap   *rwMutexMap
	queries []watchKey
}

var lastBooks *benchBooks // of one shape: a million keys in a second one would take memory for nothing

func booksOf(shape bookShape) *benchBooks {
	if lastBooks != nil && lastBooks.shape == shape {
		return lastBooks
	}
	lastBooks = nil
	books := &benchBooks{
		shape: shape, book: new(PolicyBook),
		rwMap: &rwMutexMap{m: map[watchKey]rwMutexEntry{}},
	}
	digests := map[string]string{}
	for i := range shape.keys() {
		key, digest := shape.key(i), shape.digest(i)
		if digests[digest] == "" {
			digests[digest] = digest
		}
		writeBook(books.book, key, digest)
		books.rwMap.write(key, digests[digest])
	}
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(shape.keys()) {
		key := shape.key(i)
		books.queries = append(books.queries, watchKey{key.Peer, key.Capability})
	}
	runtime.GC()
	lastBooks = books
	return books
}

// both runs a benchmark for the book and for the map, in turn.
func (b *benchBooks) both(run func(name string, a authorizer, write func(PolicyKey, string))) {
	run("book", b.book, func(key PolicyKey, digest string) { writeBook(b.book, key, digest) })
	run("rwmutex-map", b.rwMap, b.rwMap.write)
}

// authorizeOne makes the call that is measured.
func authorizeOne(b *testing.B, a authorizer, query *watchKey) {
	task := Task{Capability: query.capability, Obligations: residency}
	auth, err := a.Authorize(query.peer, task, nil, bookNow)
	if err != nil || auth.Basis != BasisAccepted {
		b.Errorf("Authorize(%v) = %v, %v", *query, auth, err)
	}
}

// BenchmarkAuthorize compares a call of Authorize with a read of a map that is
// guarded by an RWMutex, behind the same signature and with the same keys. Hot
// is one key again and again, uniform all of them in random order.
func BenchmarkAuthorize(b *testing.B) {
	for _, shape := range bookShapes {
		b.Run("keys="+shape.name, func(b *testing.B) {
			books := booksOf(shape)
			for _, access := range []string{"hot", "uniform"} {
				queries := books.queries
				if access == "hot" {
					queries = queries[:1]
				}
				books.both(func(name string, a authorizer, _ func(PolicyKey, string)) {
					b.Run("access="+access+"/mode=serial/of="+name, func(b *testing.B) { authorizeSerially(b, a, queries) })
				})
				books.both(func(name string, a authorizer, _ func(PolicyKey, string)) {
					b.Run("access="+access+"/mode=parallel/of="+name, func(b *testing.B) { authorizeInParallel(b, a, queries) })
				})
			}
		})
	}
}

func authorizeSerially(b *testing.B, a authorizer, queries []watchKey) {
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if i++; i >= len(queries) {
			i = 0
		}
		authorizeOne(b, a, &queries[i])
	}
}

func authorizeInParallel(b *testing.B, a authorizer, queries []watchKey) {
	b.ReportAllocs()
	var starts atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		i := int(starts.Add(1)) * 7919 % len(queries)
		for pb.Next() {
			if i++; i >= len(queries) {
				i = 0
			}
			authorizeOne(b, a, &queries[i])
		}
	})
}

// BenchmarkAuthorizeDuringWrites has one goroutine make so many writes a second.
func BenchmarkAuthorizeDuringWrites(b *testing.B) {
	shape := oneMillion
	books := booksOf(shape)
	epoch := uint64(8)
	for _, writes := range []int{0, 2_000, 100_000} {
		books.both(func(name string, a authorizer, write func(PolicyKey, string)) {
			b.Run(fmt.Sprintf("writes=%d/of=%s", writes, name), func(b *testing.B) {
				b.ReportAllocs()
				stop := make(chan struct{})
				var writer sync.WaitGroup
				var made atomic.Int64
				start := time.Now()
				if writes > 0 {
					epoch++
					key := shape.key(0)
					key.Epoch = epoch
					writer.Go(func() {
						tick := time.NewTicker(time.Millisecond)
						defer tick.Stop()
						random := rand.New(rand.NewPCG(3, epoch))
						for {
							select {
							case <-stop:
								return
							case <-tick.C:
							}
							for due := int64(time.Since(start).Seconds() * float64(writes)); made.Load() < due; made.Add(2) {
								i := random.IntN(shape.keys())
								key := shape.key(i)
								key.Epoch = epoch
								write(key, shape.digest(i))
							}
						}
					})
				}
				i := 0
				for b.Loop() {
					if i++; i >= len(books.queries) {
						i = 0
					}
					task := Task{Capability: books.queries[i].capability, Obligations: residency}
					if _, err := a.Authorize(books.queries[i].peer, task, nil, bookNow); err != nil && !errors.Is(err, ErrPolicyUnresolved) {
						b.Fatal(err)
					}
				}
				rate := float64(made.Load()) / time.Since(start).Seconds() // without what is caught up with afterwards
				close(stop)
				writer.Wait()
				b.ReportMetric(rate, "writes/s")
			})
		})
	}
}

// BenchmarkBookWrite moves random keys of a book of a million to a new epoch,
// and reports the longest of all writes as well.
func BenchmarkBookWrite(b *testing.B) {
	for _, shape := range []bookShape{oneMillion, {"1x1M", 1, 1_000_000}, {"1Mx1", 1_000_000, 1}} {
		b.Run("keys="+shape.name, func(b *testing.B) {
			book := booksOf(shape).book
			lastBooks = nil // the epochs are not those of the map any more
			random := rand.New(rand.NewPCG(5, 6))
			var worst time.Duration
			epoch := uint64(8)
			b.ReportAllocs()
			for b.Loop() {
				i := random.IntN(shape.keys())
				key, digest := shape.key(i), shape.digest(i+1)
				epoch++
				key.Epoch = epoch
				start := time.Now()
				if err := book.Advertise(Advertisement{key, digest}); err != nil {
					b.Fatal(err)
				}
				worst = max(worst, time.Since(start))
			}
			b.ReportMetric(float64(worst.Nanoseconds()), "worst-ns")
		})
	}
}

// BenchmarkBookFill fills a book with a million keys, each with two writes, and
// reports what that took for each write, growth included, and for each key.
func BenchmarkBookFill(b *testing.B) {
	distinct := func(i int) string { return fmt.Sprintf("sha256:%064x", i) }
	for _, tt := range []struct {
		bookShape
		digest     func(i int) string
		negotiated bool
	}{
		{oneMillion, oneMillion.digest, false},
		{bookShape{"1x1M", 1, 1_000_000}, oneMillion.digest, false},
		{bookShape{"1Mx1", 1_000_000, 1}, oneMillion.digest, false},
		{bookShape{"long-names", 10_000, 100}, oneMillion.digest, false},
		{bookShape{"negotiated", 10_000, 100}, oneMillion.digest, true},
		{bookShape{"a-digest-for-each-key", 10_000, 100}, distinct, false},
	} {
		b.Run("keys="+tt.name, func(b *testing.B) {
			lastBooks = nil
			var worst, writing time.Duration
			var heap uint64
			for b.Loop() {
				before := heapInUse()
				book := new(PolicyBook)
				for i := range tt.keys() {
					key, digest := tt.key(i), tt.digest(i)
					if tt.name == "long-names" {
						key.Peer = strings.Repeat("x", 40) + key.Peer
					}
					for _, write := range []func(){
						func() {
							if err := book.Advertise(Advertisement{key, digest}); err != nil {
								b.Fatal(err)
							}
						},
						func() {
							if tt.negotiated {
								book.CacheNegotiation(Negotiation{PolicyKey: key, Digest: digest, ExpiresAt: bookNow})
							} else {
								book.Accept(Policy{PolicyKey: key, Digest: digest})
							}
						},
					} {
						start := time.Now()
						write()
						took := time.Since(start)
						worst, writing = max(worst, took), writing+took
					}
				}
				heap = heapInUse() - before
				runtime.KeepAlive(book)
			}
			b.ReportMetric(float64(writing.Nanoseconds())/float64(2*tt.keys()*b.N), "ns/write")
			b.ReportMetric(float64(worst.Nanoseconds()), "worst-ns")
			b.ReportMetric(float64(heap)/float64(tt.keys()), "B/key")
		})
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkWake has 100,000 waiters of one key come, be woken and go, and
// reports how long the write that wakes them took at most.
func BenchmarkWake(b *testing.B) {
	const waiters = 100_000
	var worst time.Duration
	for b.Loop() {
		var book PolicyBook
		advertiseBench(b, &book, 1)
		var ready, done sync.WaitGroup
		ready.Add(waiters)
		for range waiters {
			done.Go(func() {
				w := book.watch("b.example", "summarize")
				ready.Done()
				<-w.changed()
				book.unwatch(w)
			})
		}
		ready.Wait()
		start := time.Now()
		advertiseBench(b, &book, 2)
		worst = max(worst, time.Since(start))
		done.Wait()
	}
	b.ReportMetric(float64(worst.Nanoseconds()), "worst-write-ns")
}

func advertiseBench(b *testing.B, book *PolicyBook, epoch uint64) {
	if err := book.Advertise(Advertisement{bookKey(epoch), digestA}); err != nil {
		b.Fatal(err)
	}
}
