package fedhttp

import (
	"context"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// attemptContext is the context of the request that the base gets, which is also
// [http.Response.Request]. It is one with the attempt.
//
// To the base it is the call's, with the fence as its trace and an end of its own,
// which is made when somebody asks for it: a base that answers at once never does.
//
// Once the response was handed over it is the call's and nothing else, as far as
// anybody asks from then on: the caller may make another request with it. The end
// that the base asked for still comes when the caller's context ends, for as long as
// the response's body is open.
type attemptContext attempt

// attemptEnd is what ends an attempt.
type attemptEnd struct {
	context.Context
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	ignore func() bool // ends the watch over the call's context; nil: there is none
	alone  bool        // the call's context is watched no more
}

func newAttemptEnd() *attemptEnd {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &attemptEnd{Context: ctx, cancel: cancel}
}

// canceledEnd stands for an end that came before anybody asked for it.
var canceledEnd = func() *attemptEnd {
	e := newAttemptEnd()
	e.cancel(nil)
	e.alone = true
	return e
}()

// watch has e come when parent ends.
func (e *attemptEnd) watch(parent context.Context) {
	switch {
	case parent.Done() == nil:
		return
	case parent.Err() != nil: // at once: nothing more may leave
		e.cancel(context.Cause(parent))
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.alone {
		e.ignore = context.AfterFunc(parent, func() { e.cancel(context.Cause(parent)) })
	}
}

// leave has parent keep e no longer.
func (e *attemptEnd) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.alone = true
	if e.ignore != nil {
		e.ignore()
		e.ignore = nil
	}
}

// traceKey is the key under which net/http looks for a trace, nil where it cannot
// be found out.
var traceKey = func() any {
	var asked keyCatcher
	httptrace.ContextClientTrace(&asked)
	return asked.key
}()

// keyCatcher is a context that remembers what it was asked for.
type keyCatcher struct {
	context.Context
	key any
}

func (c *keyCatcher) Value(key any) any {
	c.key = key
	return nil
}

// open makes the attempt a context below parent.
func (a *attempt) open(parent context.Context) context.Context {
	a.trace.GetConn, a.trace.GotConn = a.getConn, a.gotConn
	if traceKey == nil || httptrace.ContextClientTrace(parent) != nil {
		// The caller's own trace goes on hearing what happens. Below, the lookup finds
		// the parent's.
		a.parent = httptrace.WithClientTrace(parent, &a.trace)
		return (*attemptContext)(a)
	}
	a.parent, a.traced = parent, true
	return (*attemptContext)(a)
}

func (a *attempt) getConn(string)                     { a.fence.getConn(a.cancel) }
func (a *attempt) gotConn(info httptrace.GotConnInfo) { a.fence.gotConn(info, a.cancel) }

// cancel ends the attempt for the base. What derives from the attempt's context has
// ended when it returns.
func (a *attempt) cancel() {
	if a.end.CompareAndSwap(nil, canceledEnd) {
		return
	}
	if e := a.end.Load(); e != canceledEnd {
		e.cancel(nil)
		e.leave()
	}
}

// leave ends the attempt for us: what the base still has to do is its own affair.
func (a *attempt) leave() {
	if e := a.end.Load(); e != nil && e != canceledEnd {
		e.leave()
	}
}

// Deadline is the call's.
func (c *attemptContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }

// Done is closed when the attempt is canceled or the call's context has ended.
func (c *attemptContext) Done() <-chan struct{} {
	if c.handed.Load() {
		return c.parent.Done()
	}
	if e := c.end.Load(); e != nil {
		return e.Done()
	}
	e := newAttemptEnd()
	if !c.end.CompareAndSwap(nil, e) {
		return c.end.Load().Done() // another was made meanwhile
	}
	e.watch(c.parent)
	return e.Done()
}

// Err is why it has ended, nil where it has not. It is never nil once the channel
// that Done gave has been closed.
func (c *attemptContext) Err() error {
	if err := c.parent.Err(); err != nil {
		return err
	}
	if e := c.end.Load(); e != nil {
		return e.Err()
	}
	return nil
}

// Value finds the fence's trace, and what the call knows. A context that derives
// from this one finds its end through here, without a goroutine to watch it.
func (c *attemptContext) Value(key any) any {
	if c.handed.Load() {
		return callOf(c.parent).Value(key)
	}
	if c.traced && key == traceKey {
		return &c.trace
	}
	if e := c.end.Load(); e != nil && e != canceledEnd {
		if v := e.Value(key); v != nil {
			return v
		}
	}
	return c.parent.Value(key)
}

var _ context.Context = (*attemptContext)(nil)

// endPointer is the attempt's end, nil as long as nobody has asked for it.
type endPointer = atomic.Pointer[attemptEnd]
