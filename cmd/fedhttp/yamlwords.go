package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// What the YAML parser says of a value in terms of Go.
var (
	unknownKey = regexp.MustCompile(`field (\S+) not found in type (main\.\w+|struct \{.*?\})`)
	misfit     = regexp.MustCompile("cannot construct (\\S+)( `[^`]*`)? into (\\[\\]main\\.\\w+|main\\.\\w+|struct \\{.*?\\}|[\\w\\[\\]]+)")
	noTime     = regexp.MustCompile(`parsing time ("[^"]*") as .*?: cannot parse "[^"]*" as "[^"]*"`)
)

// yamlWords says of an error of the YAML parser what the file should have: at its top the
// list that is called name, of mappings with the keys.
func yamlWords(err error, name, keys string) string {
	text := err.Error()
	if syntax := (*yaml.LoadError)(nil); strings.HasPrefix(text, "go-yaml load error") && errors.As(err, &syntax) {
		line := max(syntax.Mark.Line, syntax.ContextMark.Line, 1)
		return fmt.Sprintf("line %d: %s; want YAML", line, strings.TrimSpace(syntax.Message+" "+syntax.ContextMsg))
	}
	text = strings.TrimPrefix(text, "yaml: construct errors: ")
	text = strings.Replace(text, "<unknown position>: yaml: expected single document, found multiple", "a second document; want one in a file", 1)
	text = unknownKey.ReplaceAllStringFunc(text, func(s string) string {
		m := unknownKey.FindStringSubmatch(s)
		if strings.HasPrefix(m[2], "main.") {
			return "unknown key " + quote(m[1]) + "; want one of " + keys
		}
		return "unknown key " + quote(m[1]) + "; want " + name
	})
	text = misfit.ReplaceAllStringFunc(text, func(s string) string {
		m := misfit.FindStringSubmatch(s)
		value := strings.TrimSpace(m[2])
		if value == "" {
			value = map[string]string{"!!seq": "a list", "!!map": "a mapping"}[m[1]]
		}
		return strings.TrimSpace(value+" does not fit") + "; want " + wanted(m[3], name, keys)
	})
	return noTime.ReplaceAllString(text, "$1 is no time; want one such as 2027-01-31T12:00:00Z")
}

// wanted is what a value of a Go type has to be in the file.
func wanted(kind, name, keys string) string {
	switch {
	case strings.HasPrefix(kind, "[]"):
		return "a list of mappings"
	case strings.HasPrefix(kind, "main."):
		return "a mapping of " + keys
	case strings.HasPrefix(kind, "struct"):
		return "a mapping with the list " + name
	case kind == "map[string]string":
		return "a mapping of text"
	case kind == "uint64":
		return "a whole number from 0"
	}
	return "text"
}
