package fedhttp

import (
	"testing"
	"unsafe"
)

// A call is one allocation. The next class of sizes would be 128 bytes more for each.
func TestCallFitsItsSizeClass(t *testing.T) {
	const class, header = 1152, 8
	if size := unsafe.Sizeof(call{}); size > class-header {
		t.Errorf("a call has %d bytes, want at most %d", size, class-header)
	}
}
