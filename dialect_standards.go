package fedhttp

import (
	"mime"
	"net/http"
	"slices"
	"strings"
)

// readHTTP reads the two statuses that say by themselves that the request went
// the wrong way (RFC 9110, section 15.5.20) or came too soon (RFC 8470, section
// 5.2). Go's TLS client sends no early data.
func readHTTP(a *reply) (remark, bool) {
	switch a.status {
	case http.StatusMisdirectedRequest:
		return saysRouting, a.newConn
	case http.StatusTooEarly:
		return saysRouting, true
	}
	return nothing, false
}

// readBearer reads a challenge of RFC 6750, section 3: the token was looked at, and
// its scope is what the policy refuses. invalid_token says nothing: gateways send
// it when their key set is stale.
func readBearer(a *reply) (remark, bool) {
	if a.status != http.StatusForbidden {
		return nothing, false
	}
	values := a.header["Www-Authenticate"]
	if len(values) != 1 || len(values[0]) > maxBodyRead {
		return nothing, false
	}
	params, ok := bearerParams(values[0])
	return saysPolicy, ok && params["error"] == "insufficient_scope"
}

// bearerParams parses a field value that is one Bearer challenge: a scheme and
// auth-params (RFC 9110, section 11.6.1). Several challenges in one value, and
// parameters that are there twice, are nobody's clear word.
func bearerParams(value string) (map[string]string, bool) {
	scheme, rest, _ := strings.Cut(strings.Trim(value, " \t"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return nil, false
	}
	params := map[string]string{}
	for {
		rest = strings.TrimLeft(rest, " \t")
		name, after, found := strings.Cut(rest, "=")
		name = strings.ToLower(strings.TrimRight(name, " \t"))
		if !found || !isToken(name) {
			return nil, false
		}
		if _, twice := params[name]; twice {
			return nil, false
		}
		text, remainder, ok := authValue(strings.TrimLeft(after, " \t"))
		if !ok {
			return nil, false
		}
		params[name] = text
		rest = strings.TrimLeft(remainder, " \t")
		if rest == "" {
			return params, true
		}
		if rest[0] != ',' {
			return nil, false
		}
		rest = rest[1:]
	}
}

// authValue takes a token or a quoted-string from the start of s.
func authValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexAny(s, " \t,")
		if end < 0 {
			end = len(s)
		}
		return s[:end], s[end:], isToken(s[:end])
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}

// The registered type of RFC 9458, section 5.3: the sender's copy of the key
// configuration is stale.
const ohttpKey = "assignments/http-problem-types#ohttp-key"

func mayBeProblem(a *reply) bool { return a.isMediaType("application/problem+json") }

// readProblem reads the type of problem details.
func readProblem(a *reply) (remark, bool) {
	kind := jsonStrings(a.body, "type")["type"]
	stale := kind == "https://iana.org/"+ohttpKey || kind == "https://www.iana.org/"+ohttpKey
	return remark{layer: LayerRouting, stale: true}, stale
}

// maxMediaType bounds, in bytes, the Content-Type that is parsed: each of its
// parameters can cost hundreds of bytes.
const maxMediaType = 1 << 10

func (a *reply) isMediaType(want ...string) bool {
	value := a.single("Content-Type")
	if len(value) > maxMediaType {
		return false
	}
	mediaType, _, err := mime.ParseMediaType(value)
	return err == nil && slices.Contains(want, mediaType)
}

func mayBeDSP(a *reply) bool { return a.isMediaType("application/json", "application/ld+json") }

// readDSP reads an error of the Dataspace Protocol's contract negotiation: the
// peer's connector has looked at what was asked for, and given a code.
func readDSP(a *reply) (remark, bool) {
	e := jsonStrings(a.body, "@type", "code", "dspace:code")
	switch e["@type"] {
	case "ContractNegotiationError", "dspace:ContractNegotiationError":
		return saysPolicy, e["code"] != "" || e["dspace:code"] != ""
	}
	return nothing, false
}
