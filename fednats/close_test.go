package fednats

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/fedhttp/fedhttp"
)

// TestCloseMeanwhile: whatever begins while a fleet is closed ends with it, and leaves
// books stale.
func TestCloseMeanwhile(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	must(t, open(t, s, Config{}).Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: key(1), Digest: "sha256:a"}))
	for range 30 {
		f := open(t, s, Config{})
		var books [8]fedhttp.PolicyBook
		var fed [8]bool
		must(t, f.Feed(t.Context(), &books[0]))
		fed[0] = true
		begin := make(chan struct{})
		var together sync.WaitGroup
		for n := 1; n < len(books); n++ {
			together.Go(func() {
				<-begin
				err := f.Feed(t.Context(), &books[n])
				if fed[n] = err == nil; !fed[n] && !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			})
		}
		for range 3 {
			together.Go(func() {
				<-begin
				_ = f.Degrade(&flagRecorder{set: map[string]bool{}})
				_ = f.Close(context.Background())
				_ = f.Status()
			})
		}
		close(begin)
		together.Wait()
		for n := range books {
			if got := basis(&books[n], key(1)); fed[n] && got != "policies_stale" {
				t.Errorf("book %d: %s", n, got)
			}
		}
	}
}
