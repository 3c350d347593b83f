package fedhttp

import "testing"

func TestRecent(t *testing.T) {
	t.Parallel()
	var r recent[int]
	for n := range 3*keepRecent + 7 {
		got := r.list()
		if len(got) != min(n, keepRecent) {
			t.Fatalf("%d are kept of %d", len(got), n)
		}
		for i, e := range got {
			if e != n-1-i {
				t.Fatalf("of %d, number %d from the newest is %d", n, i, e)
			}
		}
		r.add(n)
	}
}
