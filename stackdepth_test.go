package fedhttp

import (
	"net/http"
	"testing"
	"unsafe"
)

//go:noinline
func deepen(n int) byte {
	var room [4096]byte
	if n > 0 {
		room[n] = deepen(n - 1)
	}
	return room[n]
}

// TestStackAboveBase: what a call has on its goroutine's stack while the base sends.
func TestStackAboveBase(t *testing.T) {
	var inBase uintptr
	base := roundTripFunc(func(req *http.Request) (*http.Response, error) {
		var here byte
		inBase = uintptr(unsafe.Pointer(&here))
		return &http.Response{StatusCode: 200, Body: http.NoBody, Header: http.Header{}}, nil
	})
	tr := newTestTransport(t, Config{Base: base, Peers: []Peer{testPeer("b", "https://b.example")}})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://b.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	deepen(16)
	var here byte
	outside := uintptr(unsafe.Pointer(&here))
	if _, err := tr.RoundTrip(req); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", outside-inBase)
}
