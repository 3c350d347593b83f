package fedhttp

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// errNoBook is why a task is not held that has obligations: nobody could agree to them.
var errNoBook = errors.New("Config.Book is nil, so nothing can ever be agreed for it")

// obligedWithoutBook finds routes whose tasks could never go out, as there is no book.
func obligedWithoutBook(i int, p Peer, found *faults) {
	for j, r := range p.Routes {
		if !p.DefaultTerms.Grants(r.Task.Obligations) {
			found.add(&ConfigError{
				Peer: i, PeerID: p.ID, Field: fmt.Sprintf("Routes[%d].Task.Obligations", j),
				Format: "nothing could ever be agreed for them without Config.Book; set it to a *PolicyBook, or have DefaultTerms grant them",
			})
		}
	}
}

// pendingError says what a task waits for.
type pendingError struct {
	Authorization        // what is advertised
	reason        Reason // what the book said last; ReasonNone: it was agreed
}

func (e *pendingError) Error() string {
	switch e.reason {
	case ReasonNone:
		return "its policy was agreed too late"
	case ReasonNotAdvertised:
		return "the book knows of no policy that the peer offers it under"
	case ReasonNotAccepted:
		return fmt.Sprintf("the peer offers it under digest %s of epoch %d, which is neither accepted nor negotiated", quote(e.Digest), e.Epoch)
	case ReasonTermsInsufficient:
		return fmt.Sprintf("the terms agreed for digest %s of epoch %d do not grant all of its obligations", quote(e.Digest), e.Epoch)
	default:
		return "the book may be out of date, and nothing in it counts until SetStale(false)"
	}
}

// errLateTurn is of a task that was held with so many others that its turn came too late.
var errLateTurn = errors.New("its policy was agreed, and its turn by Hold.ReleaseRate would have come too late")

// missing says what the task waits for, by what the book said last.
func (f *preflight) missing(reason Reason) error {
	return &pendingError{f.warrant.auth(), reason}
}

// Why a request needs a capability.
var (
	errTaskRequired = errors.New("the peer has RequireTask, and neither the request's context nor a route gives it one")
	errObligedTask  = errors.New("its obligations need one, and neither the request's context nor a route gives it one")
)

// deniedError says for how long a denial covers what is like the task.
type deniedError struct {
	scope string
	until time.Time
}

func (e *deniedError) Error() string {
	var b strings.Builder
	b.WriteString("the denial")
	if e.scope != "" {
		b.WriteString(" of scope " + quote(e.scope))
	}
	if e.until.IsZero() {
		return b.String() + " still holds"
	}
	return b.String() + " holds until " + e.until.UTC().Format(time.RFC3339Nano) + ", or until the peer advertises another policy"
}

// budgetSpentError says which budget is spent.
type budgetSpentError struct{ policy DenialPolicy }

func (e *budgetSpentError) Error() string {
	return fmt.Sprintf("the peer has denied %d times within %v (Denial.Budget, Window); tasks with a capability are refused until one of them is older than that", e.policy.Budget, e.policy.Window)
}

// noPeer says why a request is no peer's, and what would make it one's.
func (t *Transport) noPeer(req *http.Request, reason Reason) error {
	o, err := originOf(req.URL)
	switch {
	case err != nil:
		return err
	case reason != ReasonUnlistedOrigin:
		return fmt.Errorf("the Host %s does not go with %s: it is another peer's, or cannot be read", quote(req.Host), quote(o.String()))
	case t.unlisted == PassUnlisted:
		return fmt.Errorf("%s is none of a peer's Origins, and a task with obligations goes to no one else", quote(o.String()))
	default:
		return fmt.Errorf("%s is none of a peer's Origins: add it there, or let such requests pass with Config.Unlisted", quote(o.String()))
	}
}
