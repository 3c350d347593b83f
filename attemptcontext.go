package fedhttp

import (
	"context"
	"net/http/httptrace"
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

// attemptEnd is what ends an attempt: a context below the call's, which can be
// taken from there without ending it.
type attemptEnd struct {
	context.Context
	cancel context.CancelFunc
	link   attemptLink
}

func newAttemptEnd(parent context.Context) *attemptEnd {
	e := &attemptEnd{link: attemptLink{Context: parent}}
	e.Context, e.cancel = context.WithCancel(&e.link)
	return e
}

// canceledEnd stands for an end that came before anybody asked for it.
var canceledEnd = func() *attemptEnd {
	e := newAttemptEnd(context.Background())
	e.cancel()
	return e
}()

// attemptLink stands between the call's context and an attempt's end, which it has
// end as that one does: with its error and its cause. What derives from a context
// can only be taken from it by ending it, unless the context has an AfterFunc.
type attemptLink struct {
	context.Context
	stop func() bool // ends the link; nil: there is none
}

var neverClosed = make(chan struct{})

// Done is not the call's, which package context would otherwise use past the link.
func (l *attemptLink) Done() <-chan struct{} {
	done := l.Context.Done()
	if done == nil || l.Err() != nil { // at once: nothing more may leave
		return done
	}
	return neverClosed
}

// AfterFunc is called once, by [context.WithCancel].
func (l *attemptLink) AfterFunc(f func()) (stop func() bool) {
	l.stop = context.AfterFunc(l.Context, f)
	return l.stop
}

// leave has the call's context keep e no longer.
func (e *attemptEnd) leave() {
	if e.link.stop != nil {
		e.link.stop()
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
	a.end.Load().cancel()
}

// leave ends the attempt for us: what the base still has to do is its own affair.
func (a *attempt) leave() {
	a.stage.Store(attemptLeft)
	if e := a.end.Load(); e != nil {
		e.leave()
	}
}

// The stages of an attempt, as its context has them.
const (
	attemptOurs   uint32 = iota
	attemptHanded        // the response is the caller's,
	attemptLeft          // who is done with it
)

func (a *attempt) handed() bool { return a.stage.Load() != attemptOurs }

// callersContext is the context of a request as its caller has made it: where it is
// that of a response, without the call that the response is of. Else a caller that
// makes each request with the response before would keep them all.
func callersContext(ctx context.Context) context.Context {
	switch of := ctx.(type) {
	case *attemptContext:
		if (*attempt)(of).handed() {
			return of.call.Context
		}
	case *call:
		return of.Context
	}
	return ctx
}

// Deadline is the call's.
func (c *attemptContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }

// Done is closed when the attempt is canceled or the call's context has ended.
func (c *attemptContext) Done() <-chan struct{} {
	if (*attempt)(c).handed() {
		return c.call.Done()
	}
	if e := c.end.Load(); e != nil {
		return e.Done()
	}
	e := newAttemptEnd(c.parent)
	if !c.end.CompareAndSwap(nil, e) {
		e.cancel()
		return c.end.Load().Done() // another was made meanwhile
	}
	if c.stage.Load() == attemptLeft { // meanwhile, and did not find e
		e.leave()
	}
	return e.Done()
}

// Err is why it has ended, nil where it has not. It is never nil once the channel
// that Done gave has been closed.
func (c *attemptContext) Err() error {
	if e := c.end.Load(); e != nil {
		if err := e.Err(); err != nil {
			return err
		}
	}
	if (*attempt)(c).handed() {
		return c.call.Err()
	}
	return c.parent.Err()
}

// Value finds the fence's trace, and what the call knows. A context that derives
// from this one finds its end through here, without a goroutine to watch it.
func (c *attemptContext) Value(key any) any {
	if (*attempt)(c).handed() {
		return c.call.Value(key)
	}
	if c.traced && key == traceKey {
		return &c.trace
	}
	if e := c.end.Load(); e != nil && e != canceledEnd {
		return e.Value(key) // the parent's too
	}
	return c.parent.Value(key)
}

// String keeps what the attempt consists of out of logs: fields of the request
// among others.
func (c *attemptContext) String() string { return "fedhttp.attempt" }

var _ context.Context = (*attemptContext)(nil)

// endPointer is the attempt's end, nil as long as nobody has asked for it.
type endPointer = atomic.Pointer[attemptEnd]
