package fedtest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

// spyTB is a test that can fail without failing this one.
type spyTB struct {
	cleanup func()
	failure string
}

func (s *spyTB) Helper()                      {}
func (s *spyTB) Cleanup(f func())             { s.cleanup = f }
func (s *spyTB) Errorf(f string, args ...any) { s.failure = fmt.Sprintf(f, args...) }

func leakyFunction(started chan<- struct{}, stop <-chan struct{}) {
	started <- struct{}{}
	<-stop
}

func TestCheckLeaks(t *testing.T) {
	t.Parallel()
	stop, started := make(chan struct{}), make(chan struct{})
	foreign, leaky := make(chan struct{}), &spyTB{}
	go leakyFunction(started, foreign) // started before: not of this test
	<-started
	fedtest.CheckLeaksWithin(leaky, 10*time.Millisecond)
	inner := make(chan struct{})
	go func() {
		go leakyFunction(started, stop)
		close(inner)
	}()
	<-inner
	<-started
	leaky.cleanup()
	if strings.Count(leaky.failure, "leakyFunction") != 1 {
		t.Errorf("failure %q", leaky.failure)
	}

	close(stop)
	clean := &spyTB{}
	fedtest.CheckLeaks(clean)
	go func() { <-stop }()
	clean.cleanup()
	if clean.failure != "" {
		t.Errorf("failure %q", clean.failure)
	}
	close(foreign)
}
