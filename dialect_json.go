package fedhttp

import (
	"encoding/json"
	"strings"
)

// jsonStrings returns those of the names that are strings at the top of a text
// that is one JSON object. Another's parser may take the first of two members of
// one name, or a name in any letter case, so a text where that would make a
// difference has no clear word, and nothing is returned of it.
func jsonStrings(text string, names ...string) map[string]string {
	if !json.Valid([]byte(text)) {
		return nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil
	}
	seen, found := map[string]bool{}, map[string]string{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil
		}
		var value any
		if d.Decode(&value) != nil {
			return nil
		}
		for _, name := range names {
			if !strings.EqualFold(key.(string), name) {
				continue
			}
			if key != name || seen[name] {
				return nil
			}
			seen[name] = true
			if s, ok := value.(string); ok {
				found[name] = s
			}
		}
	}
	return found
}
