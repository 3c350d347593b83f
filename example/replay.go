package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// The incidents took minutes and hours. Here a minute of theirs takes 100 ms:
// backoffs, gossip, negotiations and deadlines are all divided by the same.
const timeScale = 600

func scaled(d time.Duration) time.Duration { return d / timeScale }

// result is everything that was counted.
type result struct {
	figures figures
	// What the table shows beyond the figures.
	naiveBoundary, fedBoundary boundaryExtras
	signalsOff                 signalsOff
	others                     others
	negotiations               []time.Duration // as long as they took, shortest first
}

// replay runs both incidents, each with both clients. Each of the four runs has
// organisations of its own, so that no ledger carries over.
func replay(ctx context.Context, traces *traces, metrics *metrics, p *progress) (result, error) {
	var r result
	steps := []struct {
		title string
		run   func() error
	}{
		{"boundary, stock client", func() (err error) {
			r.figures.Boundary.Naive, r.naiveBoundary, err = runBoundary(ctx, newBoundary(), newNaive)
			return err
		}},
		{"boundary, fedhttp", func() (err error) {
			r.figures.Boundary.Fedhttp, r.fedBoundary, err = runBoundary(ctx, newBoundary(), fedhttpClient(traces, metrics))
			return err
		}},
		{"preflight, stock client", func() (err error) {
			r.figures.Preflight.Naive, _, err = runPreflight(ctx, newNaive)
			return err
		}},
		{"preflight, fedhttp", func() (err error) {
			r.figures.Preflight.Fedhttp, r.negotiations, err = runPreflight(ctx, fedhttpClient(traces, metrics))
			return err
		}},
		{"signals turned off, fedhttp", func() (err error) {
			r.signalsOff, err = runSignalsOff(ctx, fedhttpClient(traces, metrics))
			return err
		}},
		{"the other outcomes, fedhttp", func() (err error) {
			r.others, err = runOthers(ctx, fedhttpClient(traces, metrics))
			return err
		}},
	}
	for _, s := range steps {
		done := p.begin(s.title)
		err := s.run()
		done(err)
		if err != nil {
			return r, fmt.Errorf("%s: %w", s.title, err)
		}
	}
	return r, nil
}

// progress writes one line a step: its title, a dot every so often while it
// works, and the time that it took.
type progress struct{ w io.Writer }

func (p *progress) begin(title string) (done func(error)) {
	start := time.Now()
	fmt.Fprintf(p.w, "%-28s ", title)
	stop := make(chan struct{})
	var dots sync.WaitGroup
	dots.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprint(p.w, ".")
			case <-stop:
				return
			}
		}
	})
	return func(err error) {
		close(stop)
		dots.Wait()
		word := "done"
		if err != nil {
			word = "failed"
		}
		fmt.Fprintf(p.w, " %s in %.2f s\n", word, time.Since(start).Seconds())
	}
}
