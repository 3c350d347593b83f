package fedhttp

import (
	"errors"
	"fmt"
)

// ConfigError is one fault of a configuration. The error of [NewTransport] and of
// [Transport.SetPeers] joins one for each; errors.As finds the first. It serves
// programs that have the configuration from somewhere else, such as a file, and
// must say where the fault is there, in other words, or without what is secret.
type ConfigError struct {
	// Peer is the peer's index in Config.Peers. -1: Field is one of Config's own.
	Peer int
	// PeerID is the peer's ID, as it was given.
	PeerID string
	// Field is the way from the Peer to what is at fault, such as "Origins[1]" or
	// `Signals.CorrelationPrefixes["pe-"]`, its keys quoted as strconv does.
	Field string
	// Format and Args say what is wrong, as for fmt.Sprintf. Nothing in Format was
	// configured. An argument is the field's value or made of it, or a
	// [ConfigValue].
	Format string
	Args   []any
}

// ConfigValue is an argument of a [ConfigError] that is not of the field at fault.
type ConfigValue struct {
	// Field is the way from the same Peer to the field that Value is of or was made
	// of, or from Config where it begins with "Peers[". Empty: Value is of no field,
	// such as a limit.
	Field string
	// Value is what to show. Nil: the way itself.
	Value any
}

// Error returns the fault by peer and field, on one line.
func (e *ConfigError) Error() string {
	message := sanitize(e.Field) + ": " + fmt.Sprintf(e.Format, e.Args...)
	if e.Peer < 0 {
		return message
	}
	return fmt.Sprintf("Peers[%d] (%s): %s", e.Peer, quote(e.PeerID), message)
}

// Format writes the value as its own type does.
func (v ConfigValue) Format(f fmt.State, verb rune) {
	value := v.Value
	if value == nil {
		value = v.Field
	}
	fmt.Fprintf(f, fmt.FormatString(f, verb), value)
}

// faults collects what is wrong with a configuration, so that one error can
// name all of it.
type faults []error

func (f *faults) add(e *ConfigError) { *f = append(*f, e) }

func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return fmt.Errorf("fedhttp: %d fault(s) in the configuration:\n%w", len(f), errors.Join(f...))
}
