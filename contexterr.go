package fedhttp

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/fedhttp/fedhttp/internal/redact"
)

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

// errRequestCanceled is of a call whose Request.Cancel its caller has closed.
var errRequestCanceled = &ctxError{context.Canceled, errors.New("Request.Cancel was closed")}

// requestCanceled reports whether the caller has closed the request's Cancel, which
// net/http still heeds. http.Client closes one of its own when its Timeout is over,
// which is the context's deadline as well: nobody has walked away then.
func (c *call) requestCanceled() bool {
	select {
	case <-c.in.Cancel: //nolint:staticcheck // see above
		deadline, ok := c.Deadline()
		return !ok || time.Now().Before(deadline)
	default:
		return false
	}
}

// redacted returns err with its URL, where it has one, without userinfo and
// query. net/http's own errors have none; those of a base that uses an
// http.Client do.
func redacted(err error) error {
	with, ok := err.(*url.Error) //nolint:errorlint // one below others cannot be replaced; see errorText
	if !ok {
		return err
	}
	bare := *with
	bare.URL = redactedText(with.URL)
	return &bare
}

// maxShown bounds, in bytes, what is looked through for secrets: what a peer sent can
// have megabytes, of which 256 bytes are shown.
const maxShown = 64 << 10

// shown is a text as it may be shown, bounded and escaped, without the secrets of the
// URLs in it. Sources, bases and peers put those into texts of all kinds.
func shown(s string) string {
	if len(s) > maxShown {
		s = s[:maxShown] + cutMark
	}
	return sanitize(redact.Text(s))
}

// errorText is err.Error(), as it may be shown.
func errorText(err error) string { return shown(err.Error()) }

// faultText is what a panic said, as it may be shown.
func faultText(fault any) string { return shown(fmt.Sprint(fault)) }

func redactedText(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	return redactedURL(u)
}

// escapedPath is u.EscapedPath(), which is slow with the many paths in which
// there is nothing to escape.
func escapedPath(u *url.URL) string {
	if u.RawPath != "" {
		return u.EscapedPath()
	}
	for i := range len(u.Path) {
		switch c := u.Path[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', 'A' <= c && c <= 'Z', c == '/', c == '-', c == '_', c == '.', c == '~':
		default:
			return u.EscapedPath()
		}
	}
	return u.Path
}

// redactedURL is u without userinfo, query and fragment, which may hold secrets.
func redactedURL(u *url.URL) string {
	return u.Scheme + "://" + u.Host + u.EscapedPath()
}
