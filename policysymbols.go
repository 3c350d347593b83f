package fedhttp

import "strings"

// policySymbol is a string that entries of a book share, such as a digest.
// Two symbols of one book are equal where their pointers are.
type policySymbol struct {
	text string
	refs int // the writers'; readers do not look
}

// policySymbols has each of the strings once, as long as something refers to
// it. It is the writers' alone: readers hold on to symbols through the entries
// that they read, so one that is no longer here is still what it was.
type policySymbols map[string]*policySymbol

// acquire returns the symbol of *s, referred to once more; nil for nil.
func (m policySymbols) acquire(s *string) *policySymbol {
	if s == nil {
		return nil
	}
	symbol := m[*s]
	if symbol == nil {
		symbol = &policySymbol{text: strings.Clone(*s)}
		m[symbol.text] = symbol
	}
	symbol.refs++
	return symbol
}

func (m policySymbols) release(symbol *policySymbol) {
	if symbol == nil {
		return
	}
	if symbol.refs--; symbol.refs == 0 {
		delete(m, symbol.text)
	}
}
