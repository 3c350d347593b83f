package fedhttp

import (
	"testing"
	"unsafe"

	"github.com/fedhttp/fedhttp/fedtest"
)

// A call is one allocation. The next class of sizes would be 128 bytes more for each.
func TestCallFitsItsSizeClass(t *testing.T) {
	const class, header = 1152, 8
	if size := unsafe.Sizeof(call{}); size > class-header {
		t.Errorf("a call has %d bytes, want at most %d", size, class-header)
	}
}

// TestEvidenceIsACopy: what a caller does to a decision stays with the caller.
func TestEvidenceIsACopy(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := newRig(t, fedtest.Config{}, func(_ *Config, p *Peer) { p.Retry.MaxAttempts = 1 })
		r.peer.On("t", fedtest.RouteDrop(503))
		res := r.get(t.Context(), Task{ID: "t"})
		res.d.Evidence[0].Layer = LayerPolicy
		again, _ := DecisionFromResponse(res.resp)
		vtWant(t, "asked again", again.Evidence[0].Layer, LayerRouting)
		vtWant(t, "escalation", r.tr.RecentEscalations()[0].Decision.Evidence[0].Layer, LayerRouting)
	})
}
