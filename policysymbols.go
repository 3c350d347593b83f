package fedhttp

import "strings"

// policySymbol is a string that the entries of a book share, such as a digest.
// Two symbols of a book are equal where their pointers are.
type policySymbol struct {
	text            string
	plain, accepted policy // see share
	refs            int    // the writers'; readers do not look
}

// policySymbols has each of the strings once, and as long as an entry refers to
// it. It is the writers' alone: readers reach a symbol through the policy that
// they found, which keeps it as it is, whatever has become of it here.
type policySymbols map[string]*policySymbol

// acquire returns the symbol of *s, referred to once more; nil for nil.
func (m policySymbols) acquire(s *string) *policySymbol {
	if s == nil {
		return nil
	}
	symbol := m[*s]
	if symbol == nil {
		symbol = &policySymbol{text: strings.Clone(*s)}
		symbol.plain = policy{digest: symbol}
		symbol.accepted = policy{digest: symbol, accepted: true}
		m[symbol.text] = symbol
	}
	symbol.refs++
	return symbol
}

// release is the opposite of acquire.
func (m policySymbols) release(symbol *policySymbol) {
	if symbol == nil {
		return
	}
	if symbol.refs--; symbol.refs == 0 {
		delete(m, symbol.text)
	}
}

// share returns p to publish. Keys that advertise the same digest, and of which
// nothing else is known but whether it is accepted, have one policy in common.
func (p policy) share() *policy {
	switch {
	case p.digest == nil || p.agreed != nil:
		return &p
	case p.accepted:
		return &p.digest.accepted
	default:
		return &p.digest.plain
	}
}
