package fedhttp

import (
	"context"
	"fmt"
	"net/url"

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

// errorText is err.Error() without the secrets of the URLs in it, wherever in the
// text they are: sources and bases put them into errors of all kinds.
func errorText(err error) string { return redact.Text(err.Error()) }

// faultText is what a panic said, as it may be shown.
func faultText(fault any) string { return sanitize(redact.Text(fmt.Sprint(fault))) }

// peerText is what a peer said, as it may be shown: it may quote our own URLs.
func peerText(s string) string { return sanitize(redact.Text(s)) }

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
	if u == nil {
		return ""
	}
	return u.Scheme + "://" + u.Host + u.EscapedPath()
}
