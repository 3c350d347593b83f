package fednats

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// TestReadingInterrupted: who lists or follows a stream goes on where its consumer
// was lost, as with the server that had it.
func TestReadingInterrupted(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	f := open(t, s, Config{Parts: PartEscalations})
	const total = 1200 // more than is fetched ahead
	for n := range total {
		f.Escalator().Escalate(t.Context(), escalation(fmt.Sprintf("%04d", n)))
	}
	eventually(t, "published", func() bool { return f.Status().Escalations.Published == total })
	lose := func() {
		stream, err := f.js.Stream(t.Context(), f.names.escalations())
		must(t, err)
		for name := range stream.ConsumerNames(t.Context()).Name() {
			must(t, f.js.DeleteConsumer(t.Context(), f.names.escalations(), name))
		}
	}
	for _, follow := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var got []string
		var once sync.Once
		var ended atomic.Bool
		var reading sync.WaitGroup
		reading.Go(func() {
			err := f.readEscalations(ctx, follow, func(e StoredEscalation) {
				once.Do(lose)
				mu.Lock()
				defer mu.Unlock()
				got = append(got, e.Decision.TaskID)
			})
			ended.Store(true)
			if !follow && err != nil {
				t.Errorf("a list: %v", err)
			}
		})
		eventually(t, "everything is told", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(got) >= total && (follow || ended.Load())
		})
		if follow { // and once more, while it waits for what is to come
			lose()
			f.Escalator().Escalate(t.Context(), escalation("last"))
			eventually(t, "the last one is told", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return slices.Contains(got, "last")
			})
		}
		cancel()
		reading.Wait()
		slices.Sort(got)
		if distinct := slices.Compact(slices.Clone(got)); len(distinct) != len(got) {
			t.Errorf("follow %v: %d are told more than once", follow, len(got)-len(distinct))
		}
	}
}
