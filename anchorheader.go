package fedhttp

import (
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What the header of an answer to HTTPAnchorSource says.

const (
	maxETag = 256

	defaultAnchorHint = time.Hour
	minAnchorMaxAge   = 10 * time.Second // max-age is for caches in general, not for anchors
	maxAnchorHint     = 24 * time.Hour
)

// anchorParsers are the parsers by media type. text/plain is what servers call a
// .pem file that they do not know; parsePEM takes nothing but certificates.
var anchorParsers = map[string]func([]byte) (anchorSet, error){
	"application/jwk-set+json":          parseJWKS,
	"application/json":                  parseJWKS,
	"application/pem-certificate-chain": parsePEM,
	"application/x-pem-file":            parsePEM,
	"application/x-x509-ca-cert":        parsePEM,
	"text/plain":                        parsePEM,
}

// anchorTypes is the Accept that goes out.
var anchorTypes = strings.Join(slices.Sorted(maps.Keys(anchorParsers)), ", ")

func anchorParser(contentType string) (func([]byte) (anchorSet, error), error) {
	media, _, err := mime.ParseMediaType(contentType)
	if parse := anchorParsers[media]; parse != nil && err == nil {
		return parse, nil
	}
	return nil, fmt.Errorf("content type %s is no JWK Set and no PEM", quote(contentType))
}

// hintOf is when to fetch again. CA certificates live for years, of which half is
// too long to wait for the next.
func hintOf(set *anchorSet, header http.Header, now time.Time) time.Duration {
	hint := set.hint
	if hint == 0 {
		hint = maxAge(header)
	}
	if hint == 0 {
		hint = defaultAnchorHint
	}
	if set.roots != nil {
		hint = min(hint, max(set.expires.Sub(now)/2, time.Second))
	}
	return hint
}

// maxAge is the max-age of Cache-Control (RFC 9111, section 5.2), bounded; zero
// where there is none, or one that is zero: "ask each time" is no interval.
func maxAge(header http.Header) time.Duration {
	for _, value := range header.Values("Cache-Control") {
		for directive := range strings.SplitSeq(value, ",") {
			name, arg, _ := strings.Cut(strings.TrimSpace(directive), "=")
			seconds, _ := strconv.ParseUint(strings.Trim(arg, `"`), 10, 31) // the most where it is more, 0 where it is none
			if strings.EqualFold(name, "max-age") && seconds > 0 {
				return min(max(time.Duration(seconds)*time.Second, minAnchorMaxAge), maxAnchorHint)
			}
		}
	}
	return 0
}

// entityTag is the answer's ETag, if it is one (RFC 9110, section 8.8.3) and of
// ordinary length.
func entityTag(header http.Header) string {
	tag := header.Get("ETag")
	opaque, quoted := strings.CutPrefix(strings.TrimPrefix(tag, "W/"), `"`)
	opaque, closed := strings.CutSuffix(opaque, `"`)
	if !quoted || !closed || len(tag) > maxETag {
		return ""
	}
	for i := range len(opaque) {
		if c := opaque[i]; c < '!' || c > '~' || c == '"' {
			return ""
		}
	}
	return tag
}
