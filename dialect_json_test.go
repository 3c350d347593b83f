package fedhttp

import (
	"maps"
	"strings"
	"testing"
)

// TestJSONStrings: of a text that two parsers would not read alike nothing is read.
func TestJSONStrings(t *testing.T) {
	t.Parallel()
	type found = map[string]string
	for text, want := range map[string]found{
		`{"a":"1","b":"2","c":"3"}`:                   {"a": "1", "b": "2"},
		" {\n\"b\" : \"\" , \"a\":\"\\u0031\" } \r\n": {"a": "1", "b": ""},
		`{"\u0061":"1"}`:                              {"a": "1"},
		`{"a":1,"b":["2"]}`:                           {},
		`{"a":null,"b":{"a":"1"}}`:                    {},
		`{"c":"1","c":"2","C":"3","a":"4"}`:           {"a": "4"},
		`{"c":{"a":"1","a":"2"},"a":"3"}`:             {"a": "3"},
		`{}`:                                          {},
		`{"a":"1","a":"1"}`:                           nil,
		`{"a":0,"a":"1"}`:                             nil,
		`{"a":"1","\u0061":"2"}`:                      nil,
		`{"a":"1","A":"2"}`:                           nil,
		`{"A":"1"}`:                                   nil,
		`{"a":"1"}{}`:                                 nil,
		`{"a":"1"} x`:                                 nil,
		`{"a":"1",}`:                                  nil,
		`{"a":"1"`:                                    nil,
		`{"a" "1"}`:                                   nil,
		`[{"a":"1"}]`:                                 nil,
		`"a"`:                                         nil,
		`null`:                                        nil,
		``:                                            nil,
		"\ufeff" + `{"a":"1"}`:                        nil,
		strings.Repeat(`{"a":`, 600):                  nil,
		`{"c":` + strings.Repeat("[", 2000) + `,"a":1}`: nil,
	} {
		if got := jsonStrings(text, "a", "b"); !maps.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%.60q: %q, want %q", text, got, want)
		}
	}
	// encoding/json takes these letters for a k and an s.
	for _, text := range []string{"{\"mes\u017fage\":\"1\"}", "{\"ta\u212a\":\"1\"}", "{\"message\":\"1\",\"me\u017f\u017fage\":\"2\"}"} {
		if got := jsonStrings(text, "message", "tak"); got != nil {
			t.Errorf("%q: %q", text, got)
		}
	}
}
