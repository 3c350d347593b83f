package fedhttp

import "context"

// ctxError is why a context ended: its error and its cause, which errors.Is
// both finds.
type ctxError struct{ err, cause error }

func (e *ctxError) Error() string   { return e.err.Error() + ": " + e.cause.Error() }
func (e *ctxError) Unwrap() []error { return []error{e.err, e.cause} }
func (e *ctxError) Timeout() bool   { return e.err == context.DeadlineExceeded } //nolint:errorlint // a context's error is never wrapped

// contextError returns why ctx ended, keeping the cause that its owner gave.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == cause { //nolint:errorlint // the same value, not the same kind
		return err
	}
	return &ctxError{err, cause}
}
