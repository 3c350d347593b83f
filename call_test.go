package fedhttp

import (
	"testing"
	"unsafe"
)

// A call is one allocation. The class of sizes above this one has eight objects
// to a span in place of eleven, which shows in what a call costs.
func TestCallFitsItsSizeClass(t *testing.T) {
	const class, header = 1152, 8
	if size := unsafe.Sizeof(call{}); size > class-header {
		t.Errorf("a call has %d bytes, want at most %d", size, class-header)
	}
}
