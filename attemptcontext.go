package fedhttp

import (
	"context"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// attemptContext is the context that the base gets: the call's, with the fence as
// its trace, and an end of its own. It is one with the attempt, and its end is made
// when somebody asks for it: a base that answers at once never does.
type attemptContext attempt

// attemptEnd is a context that ends, and how to end it.
type attemptEnd struct {
	context.Context
	cancel context.CancelFunc
}

// canceledEnd stands for an end that came before anybody asked for it.
var canceledEnd = func() *attemptEnd {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return &attemptEnd{ctx, cancel}
}()

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
	a.trace.GetConn, a.trace.GotConn, a.trace.GotFirstResponseByte = a.getConn, a.gotConn, a.gotFirstByte
	if traceKey == nil || httptrace.ContextClientTrace(parent) != nil {
		// The caller's own trace goes on hearing what happens. Below, the lookup finds
		// the parent's.
		a.parent = httptrace.WithClientTrace(parent, &a.trace)
		return (*attemptContext)(a)
	}
	a.parent, a.traced = parent, true
	return (*attemptContext)(a)
}

func (a *attempt) getConn(string) { a.fence.getConn(a.cancel) }

func (a *attempt) gotConn(info httptrace.GotConnInfo) {
	err := a.fence.refusal()
	if err == nil {
		err = staysHere(a.parent, info.Conn)
	}
	if err == nil {
		err = a.stillCleared(info.Conn)
	}
	if err != nil {
		a.fence.refuse(info.Conn, err, a.cancel)
		return
	}
	a.fence.gotConn(info, a.cancel)
}

// gotFirstByte is called where nothing more is read meanwhile. Later the answer that
// is due may have been read as well.
func (a *attempt) gotFirstByte() {
	a.fence.mu.Lock()
	defer a.fence.mu.Unlock()
	a.early = a.fence.early()
}

func (a *attempt) isEarly() bool {
	a.fence.mu.Lock()
	defer a.fence.mu.Unlock()
	return a.early
}

// cancel ends the attempt's context.
func (a *attempt) cancel() {
	if !a.end.CompareAndSwap(nil, canceledEnd) {
		a.end.Load().cancel()
	}
}

// ended is the context's end, which is made now where it was not.
func (c *attemptContext) ended() *attemptEnd {
	if e := c.end.Load(); e != nil {
		return e
	}
	ctx, cancel := context.WithCancel(c.parent)
	e := &attemptEnd{ctx, cancel}
	if !c.end.CompareAndSwap(nil, e) {
		cancel() // another was made meanwhile
		return c.end.Load()
	}
	return e
}

// callersContext is the context of a request as its caller has made it: where it is
// that of a response, without the call that the response is of. Else a caller that
// makes each request with the response before would keep them all.
func callersContext(ctx context.Context) context.Context {
	if of, ok := ctx.(*call); ok {
		return of.Context
	}
	return ctx
}

// Deadline is the call's.
func (c *attemptContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }

// Done is closed when the attempt has ended.
func (c *attemptContext) Done() <-chan struct{} { return c.ended().Done() }

// Err is why the attempt has ended, nil where it has not.
func (c *attemptContext) Err() error {
	if e := c.end.Load(); e != nil {
		return e.Err()
	}
	return c.parent.Err()
}

// Value finds the fence's trace, and what the call knows. A context that derives
// from this one finds its end through here, without a goroutine to watch it.
func (c *attemptContext) Value(key any) any {
	if c.traced && key == traceKey {
		return &c.trace
	}
	if e := c.end.Load(); e != nil && e != canceledEnd {
		return e.Value(key)
	}
	return c.parent.Value(key)
}

// String keeps what the attempt consists of out of logs: fields of the request
// among others.
func (c *attemptContext) String() string { return "fedhttp.attempt" }

var _ context.Context = (*attemptContext)(nil)

// endPointer is the attempt's end, nil as long as nobody has asked for it.
type endPointer = atomic.Pointer[attemptEnd]
