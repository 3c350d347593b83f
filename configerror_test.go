package fedhttp_test

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/fedhttp/fedhttp"
)

// TestConfigError: each fault is a *ConfigError, and its ways lead to something
// that was configured.
func TestConfigError(t *testing.T) {
	t.Parallel()
	peers, want := faultyPeers()
	cfg := fedhttp.Config{Peers: peers, Unlisted: 9}
	_, err := fedhttp.NewTransport(cfg)
	var first *fedhttp.ConfigError
	if !errors.As(err, &first) || first.Peer != -1 || first.Field != "Unlisted" || first.Error() != "Unlisted: 9 is no unlisted policy; want one of 0 (refuse), 1 (pass)" {
		t.Errorf("the first fault: %+v", first)
	}
	faults := 0
	for _, err := range errors.Unwrap(err).(interface{ Unwrap() []error }).Unwrap() {
		fault, ok := errors.AsType[*fedhttp.ConfigError](err)
		if !ok {
			t.Fatalf("%v is a %T", err, err)
		}
		faults++
		from := reflect.ValueOf(cfg)
		if fault.Peer >= 0 {
			from = reflect.ValueOf(peers[fault.Peer])
			if fault.PeerID != peers[fault.Peer].ID {
				t.Errorf("%v: the peer is %q", fault, fault.PeerID)
			}
		}
		if !leads(from, fault.Field) {
			t.Errorf("%v: no such field", fault)
		}
		for _, arg := range fault.Args {
			if v, ok := arg.(fedhttp.ConfigValue); ok && v.Field != "" && !leads(from, v.Field) && !leads(reflect.ValueOf(cfg), v.Field) {
				t.Errorf("%v: an argument of %s", fault, v.Field)
			}
		}
	}
	if faults < len(want) {
		t.Errorf("%d faults, want at least %d", faults, len(want))
	}
}

// leads reports whether the way leads from v to a value.
func leads(v reflect.Value, way string) bool {
	for way != "" {
		switch key, isKey := strings.CutPrefix(way, "["); {
		case !isKey:
			way = strings.TrimPrefix(way, ".")
			end := strings.IndexAny(way+".", ".[")
			v = v.FieldByName(way[:end])
			way = way[end:]
		case v.Kind() == reflect.Map:
			quoted, err := strconv.QuotedPrefix(key)
			if err != nil {
				return false
			}
			key, _ := strconv.Unquote(quoted)
			v = v.MapIndex(reflect.ValueOf(key))
			way = strings.TrimPrefix(way, "["+quoted+"]")
		default:
			number, rest, _ := strings.Cut(key, "]")
			i, err := strconv.Atoi(number)
			if err != nil || i >= v.Len() {
				return false
			}
			v, way = v.Index(i), rest
		}
		if !v.IsValid() {
			return false
		}
	}
	return true
}
