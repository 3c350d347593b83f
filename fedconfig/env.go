package fedconfig

import (
	"fmt"
	"os"
	"strings"
)

// expand replaces the references ${NAME} in s by the environment's values, and
// $$ by a dollar. What a variable holds is not looked at again. It returns the
// names of the variables, and what is wrong, with which the text is unusable.
func expand(s string) (expanded string, names, problems []string) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "$")
		b.WriteString(before)
		switch {
		case !found:
			return b.String(), names, problems
		case strings.HasPrefix(rest, "$"):
			b.WriteByte('$')
			s = rest[1:]
		case strings.HasPrefix(rest, "{"):
			name, after, closed := strings.Cut(rest[1:], "}")
			if !closed || !isName(name) {
				problems = append(problems, fmt.Sprintf("%s is no reference; want ${NAME} of letters, digits and underscores, or $$ for a dollar",
					quote("${"+name)))
				return "", names, problems
			}
			names = append(names, name)
			value, set := os.LookupEnv(name)
			switch {
			case !set:
				problems = append(problems, fmt.Sprintf("${%s} is not set in the environment", name))
			case b.Len()+len(value) > maxSize:
				problems = append(problems, fmt.Sprintf("${%s} makes the value larger than %d bytes", name, maxSize))
				return "", names, problems
			default:
				b.WriteString(value)
			}
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
