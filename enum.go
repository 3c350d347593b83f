package fedhttp

import (
	"fmt"
	"slices"
	"strings"
)

// The closed sets of this package (Layer, Outcome, Reason, ...) are small
// integers with a table of names. The three functions below serve all of them,
// so that every set prints, marshals and parses in the same way.

type enum interface{ ~uint8 }

func enumString[E enum](names []string, kind string, e E) string {
	if int(e) < len(names) {
		return names[e]
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(e))
}

// enumChoices lists what a field of the set may be, such as "0 (verify), 1 (require)".
func enumChoices(names []string) string {
	choices := make([]string, 0, len(names))
	for i, name := range names {
		if name != "" {
			choices = append(choices, fmt.Sprintf("%d (%s)", i, name))
		}
	}
	return strings.Join(choices, ", ")
}

func enumMarshal[E enum](names []string, kind string, e E) ([]byte, error) {
	if int(e) < len(names) {
		return []byte(names[e]), nil
	}
	return nil, fmt.Errorf("fedhttp: %d is no %s", uint8(e), kind)
}

func enumUnmarshal[E enum](names []string, kind string, e *E, text []byte) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return fmt.Errorf("fedhttp: %s is no %s; want one of %q", quote(string(text)), kind, names)
	}
	*e = E(i)
	return nil
}
