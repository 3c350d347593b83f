package fedhttp

import (
	"fmt"
	"net/http"
)

// ReceiptMode is how the digest that a response says it was produced under is
// checked. It is a closed set; the zero value is VerifyReceipt. Receipts are
// checked for tasks with obligations only, on answers of the application.
type ReceiptMode uint8

// The receipt modes.
const (
	// VerifyReceipt: a receipt that is present must match.
	VerifyReceipt ReceiptMode = iota
	// RequireReceipt: a success (2xx) must carry one, and it must match.
	RequireReceipt
	// IgnoreReceipt: receipts are not looked at.
	IgnoreReceipt
)

var receiptNames = []string{"verify", "require", "ignore"}

// String returns the mode's token, such as "verify".
func (m ReceiptMode) String() string { return enumString(receiptNames, "receipt mode", m) }

// MarshalText returns the mode's token, or an error for a value outside the set.
func (m ReceiptMode) MarshalText() ([]byte, error) {
	return enumMarshal(receiptNames, "receipt mode", m)
}

// UnmarshalText parses a mode's token.
func (m *ReceiptMode) UnmarshalText(text []byte) error {
	return enumUnmarshal(receiptNames, "receipt mode", m, text)
}

// checkReceipt returns why the response must be withheld, ReasonNone where it
// need not be. Every receipt counts: one that matches does not excuse another
// that differs. A task that goes under the peer's default terms was authorized
// under no digest, so there is none that a receipt could differ from.
func checkReceipt(mode ReceiptMode, resp *http.Response, header string, task *Task, auth Authorization) Reason {
	if mode == IgnoreReceipt || len(task.Obligations) == 0 {
		return ReasonNone
	}
	receipts := resp.Header[header]
	if auth.Basis != BasisNoObligation {
		for _, digest := range receipts {
			if digest != auth.Digest {
				return ReasonReceiptDiffers
			}
		}
	}
	if mode == RequireReceipt && len(receipts) == 0 && resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return ReasonReceiptMissing
	}
	return ReasonNone
}

// receiptFault says what is wrong with the receipts of a response that is withheld: the
// response is gone then, and somebody has to compare the two digests.
//
//go:noinline
func receiptFault(why Reason, resp *http.Response, header string, auth Authorization) error {
	if why == ReasonReceiptMissing {
		return fmt.Errorf("it has no %s, and the peer's Receipt requires one", header)
	}
	for _, digest := range resp.Header[header] {
		if digest != auth.Digest {
			return fmt.Errorf("its receipt names digest %s; the task was sent under %s of epoch %d", quote(digest), quote(auth.Digest), auth.Epoch)
		}
	}
	return nil
}
