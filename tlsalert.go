package fedhttp

import (
	"errors"
	"net"
	"reflect"
)

// The TLS alerts (RFC 8446, section 6.2) with which a peer speaks of us.
const (
	alertBadCertificate         = 42
	alertUnsupportedCertificate = 43
	alertCertificateRevoked     = 44
	alertCertificateExpired     = 45
	alertCertificateUnknown     = 46
	alertUnknownCA              = 48
	alertAccessDenied           = 49
	alertCertificateRequired    = 116
)

func refusesCertificate(code uint8) bool {
	switch code {
	case alertBadCertificate, alertUnsupportedCertificate, alertCertificateRevoked, alertCertificateExpired,
		alertCertificateUnknown, alertUnknownCA, alertCertificateRequired:
		return true
	}
	return false
}

// tlsAlert returns the code of the alert that the peer sent, if err is one.
// crypto/tls wraps a remote alert in a net.OpError as a type that it does not
// export, so errors.As with tls.AlertError does not find it; its number does.
func tlsAlert(err error) (uint8, bool) {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return 0, false
	}
	if v := reflect.ValueOf(op.Err); v.IsValid() && v.Kind() == reflect.Uint8 {
		return uint8(v.Uint()), true
	}
	return 0, false
}
