package fedhttp

import (
	"errors"
	"testing"
)

// chatty says of itself what it likes.
type chatty struct{ error }

func (chatty) ErrorType() string { return "anything" }

func TestErrorTypeIsClosed(t *testing.T) {
	t.Parallel()
	if got := typeOf(chatty{errors.New("x")}); got != "fedhttp.chatty" {
		t.Errorf("error.type is %q", got)
	}
}
