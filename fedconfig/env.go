package fedconfig

import (
	"fmt"
	"os"
	"strings"
)

// maxExpanded bounds, in bytes, what the values that are written with a dollar
// become, all of them in the file together.
const maxExpanded = maxSize

// expand replaces the references ${NAME} in s by the environment's values, and
// $$ by a dollar. What a variable holds is not looked at again. It reports whether
// there are references, and what is wrong, with which the text is unusable.
func (d *decoder) expand(s string) (expanded string, references bool, problems []string) {
	var b strings.Builder
	defer func() { d.expanded += b.Len() }()
	for {
		before, rest, found := strings.Cut(s, "$")
		b.WriteString(before)
		switch {
		case d.expanded+b.Len() > maxExpanded:
			d.large = true
			return "", references, append(problems, fmt.Sprintf("makes the values with a dollar more than %d bytes in all; want less", maxExpanded))
		case !found:
			return b.String(), references, problems
		case strings.HasPrefix(rest, "$"):
			b.WriteByte('$')
			s = rest[1:]
		case strings.HasPrefix(rest, "{"):
			name, after, closed := strings.Cut(rest[1:], "}")
			if !closed || !isName(name) {
				problems = append(problems, fmt.Sprintf("%s is no reference; want ${NAME} of letters, digits and underscores, or $$ for a dollar",
					quote("${"+name)))
				return "", references, problems
			}
			references = true
			value, set := os.LookupEnv(name)
			if !set {
				problems = append(problems, fmt.Sprintf("${%s} is not set in the environment", name))
			}
			b.WriteString(value)
			s = after
		default:
			b.WriteByte('$')
			s = rest
		}
	}
}

// isName reports whether s can be the name of a variable.
func isName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_', i > 0 && '0' <= c && c <= '9':
		default:
			return false
		}
	}
	return s != ""
}
