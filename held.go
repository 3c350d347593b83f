package fedhttp

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// heldTasks are the tasks that a peer holds, by capability. It costs a held
// task next to nothing: how many came in each second is all that is kept.
type heldTasks struct {
	mu    sync.Mutex
	total int
	byKey map[string]*heldKey
}

type heldKey struct {
	tasks int
	// since has the seconds in which tasks came, in their order; tasks that have
	// left since then leave seconds without any behind.
	since []heldSecond
}

type heldSecond struct {
	second int64 // Unix
	tasks  int
}

// join counts a task that begins to wait, unless limit tasks do already. leave
// needs the second that it returns.
func (h *heldTasks) join(capability string, now time.Time, limit int) (second int64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.total >= limit {
		return 0, false
	}
	key := h.byKey[capability]
	if key == nil {
		if h.byKey == nil {
			h.byKey = make(map[string]*heldKey)
		}
		key = &heldKey{}
		h.byKey[capability] = key
	}
	h.total++
	key.tasks++
	second = now.Unix()
	if n := len(key.since); n > 0 && key.since[n-1].second >= second { // also where the clock was set back
		key.since[n-1].tasks++
		return key.since[n-1].second, true
	}
	if len(key.since) == cap(key.since) {
		key.since = slices.DeleteFunc(key.since, func(s heldSecond) bool { return s.tasks == 0 })
	}
	key.since = append(key.since, heldSecond{second, 1})
	return second, true
}

func (h *heldTasks) leave(capability string, second int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := h.byKey[capability]
	h.total--
	if key.tasks--; key.tasks == 0 {
		delete(h.byKey, capability)
		return
	}
	i, _ := slices.BinarySearchFunc(key.since, second, func(s heldSecond, second int64) int { return cmp.Compare(s.second, second) })
	key.since[i].tasks--
	for key.since[0].tasks == 0 {
		key.since = key.since[1:]
	}
}

func (h *heldTasks) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.total
}

// oldest is how long the task has waited that has waited longest.
func (h *heldTasks) oldest(now time.Time) (longest time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range h.byKey {
		longest = max(longest, key.oldest(now))
	}
	return longest
}

func (k *heldKey) oldest(now time.Time) time.Duration {
	return max(0, now.Sub(time.Unix(k.since[0].second, 0)))
}

// list has the keys, the one that has waited longest first.
func (h *heldTasks) list(now time.Time) []HeldStatus {
	h.mu.Lock()
	all := make([]HeldStatus, 0, len(h.byKey))
	for capability, key := range h.byKey {
		all = append(all, HeldStatus{Capability: capability, Tasks: key.tasks, OldestFor: key.oldest(now)})
	}
	h.mu.Unlock()
	slices.SortFunc(all, func(a, b HeldStatus) int {
		return cmp.Or(cmp.Compare(b.OldestFor, a.OldestFor), cmp.Compare(a.Capability, b.Capability))
	})
	return all
}
