package fedhttp

import (
	"context"
	"maps"
	"net/http"
	"time"
)

// Terms are string keys and values: what a task demands of the policy that it
// runs under (its obligations), or what a policy grants. Nil and empty are the
// same: nothing is demanded, nothing is granted.
type Terms map[string]string

// Grants reports whether every key of obligations is in t with the same value.
// Empty obligations are always granted. The comparison is exact: no value
// implies another.
func (t Terms) Grants(obligations Terms) bool {
	for key, want := range obligations {
		if got, ok := t[key]; !ok || got != want {
			return false
		}
	}
	return true
}

// Task says what a request is for. It travels in the request's context
// ([ContextWithTask]) or comes from the peer's [Route] that the request
// matches; a request that http.Client makes to follow a redirect is of the same
// Task, wherever it leads, and what its own context says adds up with that. A Task is
// not changed by this package and must not be changed by its owner while a request that
// carries it is in flight.
type Task struct {
	// ID names the task in spans, denials and escalations. It is not sent to
	// the peer. Optional.
	ID string
	// Capability is the peer's capability that the task uses. A task with
	// Obligations needs one; a task without a capability is an ordinary request.
	Capability string
	// Scope narrows a capability (a delegation, a dataset). A denial covers one
	// scope. Optional; "" is a scope of its own.
	Scope string
	// Obligations are what the task demands of the policy that it runs under.
	// Where they are not granted by the peer's DefaultTerms, the task is sent
	// only under an accepted digest or an unexpired negotiation.
	Obligations Terms
	// PolicyDeadline is how long the task may wait for its policy. Zero: only
	// HoldPolicy.MaxWait bounds the wait. In the past: not held at all.
	PolicyDeadline time.Time
}

type taskKey struct{}

// ContextWithTask returns a context whose requests carry task. A Task in ctx
// is replaced, not merged.
func ContextWithTask(ctx context.Context, task Task) context.Context {
	return context.WithValue(ctx, taskKey{}, &task)
}

// TaskFromContext returns the Task that [ContextWithTask] put into ctx.
func TaskFromContext(ctx context.Context) (Task, bool) {
	task := taskOf(ctx)
	return *task, task != &noTask
}

// noTask is the task of an ordinary request.
var noTask Task

// taskOf returns the task of ctx, which is never changed.
func taskOf(ctx context.Context) *Task {
	if task, ok := ctx.Value(taskKey{}).(*Task); ok {
		return task
	}
	return &noTask
}

// carriedTask returns the task that a request brings with it: its context's, completed,
// where http.Client has made it to follow a redirect, by that of the request that was
// redirected. That one may have got it from a route that the place which the peer has
// chosen lacks. In between may be places that are no peer's.
func carriedTask(req *http.Request) *Task {
	task, from := taskOf(req.Context()), req.Response
	for range maxVia {
		if from == nil || from.Request == nil {
			break
		}
		if c := callOf(from.Request.Context()); c != nil {
			return task.withDefaults(c.task)
		}
		from = from.Request.Response
	}
	return task
}

// maxVia is more redirects in a row than a client follows, whatever its CheckRedirect;
// whoever makes a request by hand may have made a ring of them.
const maxVia = 1000

// detached is the context that the sinks and resolvers of our own side get: what
// they send, perhaps through the same Transport, is neither the task nor the call.
type detached struct{ context.Context }

func (d detached) Value(key any) any {
	switch key.(type) {
	case taskKey, callKey:
		return nil
	}
	return d.Context.Value(key)
}

// withDefaults fills the fields that t leaves open from a route's defaults, or from the
// task of a request that was redirected. Obligations add up, and t's value wins where
// both name a key: a caller can say more, but silence never takes an obligation away.
func (t *Task) withDefaults(route *Task) *Task {
	switch {
	case route == &noTask:
		return t
	case t == &noTask:
		return route
	}
	both := *t
	both.fill(route)
	return &both
}

func (t *Task) fill(route *Task) {
	if t.ID == "" {
		t.ID = route.ID
	}
	if t.Capability == "" {
		t.Capability = route.Capability
	}
	if t.Scope == "" {
		t.Scope = route.Scope
	}
	if t.PolicyDeadline.IsZero() {
		t.PolicyDeadline = route.PolicyDeadline
	}
	switch {
	case len(t.Obligations) == 0:
		t.Obligations = route.Obligations
	case len(route.Obligations) > 0:
		merged := maps.Clone(route.Obligations)
		maps.Copy(merged, t.Obligations)
		t.Obligations = merged
	}
}
