package main

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/fedhttp/fedhttp"
)

// The fields in which a client of the gateway says what its request is for.
const (
	headerCapability  = ownPrefix + "Capability"
	headerScope       = ownPrefix + "Scope"
	headerTask        = ownPrefix + "Task"
	headerObligations = ownPrefix + "Obligations"
	headerPolicyWait  = ownPrefix + "Policy-Wait"
)

// readTask reads the task of a request; given is false where no field says
// anything. A field of the gateway that is not known is an error: it may be an
// obligation that somebody misspelled.
func readTask(h http.Header, now time.Time) (task fedhttp.Task, given bool, err error) {
	for name, values := range h {
		canonical := http.CanonicalHeaderKey(name)
		if !strings.HasPrefix(canonical, ownWord) {
			continue
		}
		given = true
		if canonical == headerObligations {
			if task.Obligations, err = readObligations(values); err != nil {
				return task, true, err
			}
			continue
		}
		if len(values) != 1 {
			return task, true, fmt.Errorf("%s: want it once", canonical)
		}
		value := values[0]
		if value == "" || len(value) > maxShown || plain(value) != value {
			return task, true, fmt.Errorf("%s: want 1 to %d printable characters of ASCII", canonical, maxShown)
		}
		switch canonical {
		case headerCapability:
			task.Capability = value
		case headerScope:
			task.Scope = value
		case headerTask:
			task.ID = value
		case headerPolicyWait:
			wait, err := time.ParseDuration(value)
			if err != nil || wait < 0 {
				return task, true, fmt.Errorf("%s: want a duration such as 30s, or 0s not to wait at all", canonical)
			}
			task.PolicyDeadline = now.Add(wait)
		default:
			return task, true, fmt.Errorf("%s is not known; want %s, %s, %s, %s or %s", plain(canonical),
				headerCapability, headerObligations, headerScope, headerTask, headerPolicyWait)
		}
	}
	return task, given, nil
}

// readObligations reads a Dictionary of RFC 9651: residency=eu, retention="30d". What
// it would leave out is an error: an obligation that is lost is none.
func readObligations(values []string) (fedhttp.Terms, error) {
	const want = headerObligations + `: want a dictionary such as: residency=eu, retention="30d"`
	dict, err := httpsfv.UnmarshalDictionary(values)
	if err != nil {
		return nil, fmt.Errorf("%s (RFC 9651)", want)
	}
	whole := strings.Join(values, ",")
	if members(whole) != len(dict.Names()) {
		return nil, fmt.Errorf("%s, each key once", want)
	}
	if padded.MatchString(stringItem.ReplaceAllString(whole, `""`)) {
		return nil, fmt.Errorf("%s; a number has a zero before it, which is lost: put it in double quotes", want)
	}
	terms := make(fedhttp.Terms, len(dict.Names()))
	for _, name := range dict.Names() {
		member, _ := dict.Get(name)
		item, ok := member.(httpsfv.Item)
		if !ok {
			return nil, fmt.Errorf("%s; %s is a list", want, name)
		}
		if len(item.Params.Names()) > 0 {
			return nil, fmt.Errorf("%s; %s has parameters", want, name)
		}
		switch v := item.Value.(type) {
		case string:
			terms[name] = v
		case httpsfv.Token:
			terms[name] = string(v)
		case int64:
			terms[name] = strconv.FormatInt(v, 10)
		case bool:
			terms[name] = strconv.FormatBool(v)
		default:
			return nil, fmt.Errorf("%s; %s has a value of another kind: put it in double quotes", want, name)
		}
	}
	return terms, nil
}

// An Integer has lost the zeros before it once it is parsed, and "040" is not "40" to a
// policy. What stands in a String is none.
var (
	stringItem = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	padded     = regexp.MustCompile(`=(?:-?0[0-9]|-0)`)
)

// members counts the members of a Dictionary that can be parsed, of which a parser
// keeps the last of a key. Commas are between them and in strings.
func members(dictionary string) int {
	n, quoted := 1, false
	for i := 0; i < len(dictionary); i++ {
		switch dictionary[i] {
		case '\\':
			i++
		case '"':
			quoted = !quoted
		case ',':
			if !quoted {
				n++
			}
		}
	}
	return n
}
