package main

import (
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// testContract breaks one trace of each outcome in every way that an attribute
// can be wrong, and wants each to be noticed: a contract that lets everything
// through is none.
func testContract(t *testing.T, roots []*node) {
	examples := map[string]*node{}
	for _, root := range roots {
		if outcome := root.text("federation.outcome"); examples[outcome] == nil {
			examples[outcome] = root
		}
	}
	breaks := 0
	for outcome, root := range examples {
		root.walk(func(n *node) {
			intact := pcommon.NewMap()
			n.Attributes().CopyTo(intact)
			broken := func(how string, change func(pcommon.Map)) {
				breaks++
				change(n.Attributes())
				if len(faults(root)) == 0 {
					t.Errorf("outcome %s, span %q: %s, and nobody noticed", outcome, n.Name(), how)
				}
				intact.CopyTo(n.Attributes())
			}
			for key, a := range wanted(n) {
				if _, ok := n.Attributes().Get(key); !ok {
					continue
				}
				if !a.optional {
					broken(key+" was dropped", func(m pcommon.Map) { m.Remove(key) })
				}
				broken(key+" was of another type", func(m pcommon.Map) { m.PutDouble(key, 1) })
			}
			broken("a stray attribute was there", func(m pcommon.Map) { m.PutStr("federation.stray", "x") })
			if n.role == roleCall {
				for _, other := range outcomeNames() {
					if other != n.text("federation.outcome") {
						broken("it was called "+other, func(m pcommon.Map) {
							m.PutStr("federation.outcome", other)
							if other != "delivered" {
								m.PutStr("error.type", other)
							}
						})
					}
				}
			}
		})
	}
	t.Logf("%d faults made, in %d traces", breaks, len(examples))
}
