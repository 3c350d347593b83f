package bench

import (
	"bytes"
	"cmp"
	"maps"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// Lock is where goroutines waited for each other.
type Lock struct {
	Owner string // "fedhttp", "gobreaker", "harness" or "other"
	Func  string // that took the lock, or waited
	Delay time.Duration
}

// Contention runs what it is given, and returns where it waited for locks and for
// anything else, most of it first: by the mutex profile (who held a lock that
// others waited for) and by the block profile (who waited).
func Contention(run func()) (mutex, block []Lock) {
	mutexes, blocks := read("mutex"), read("block")
	runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)
	run()
	runtime.SetBlockProfileRate(0)
	runtime.SetMutexProfileFraction(0)
	return locks(mutexes, read("mutex")), locks(blocks, read("block"))
}

func read(name string) *profile.Profile {
	var out bytes.Buffer
	if err := pprof.Lookup(name).WriteTo(&out, 0); err != nil {
		panic(err)
	}
	return must(profile.Parse(&out))
}

// locks are the delays of after without those of before.
func locks(before, after *profile.Profile) []Lock {
	before.Scale(-1)
	byFunc := map[string]Lock{}
	for _, s := range must(profile.Merge([]*profile.Profile{before, after})).Sample {
		name := holder(s)
		l := byFunc[name]
		l.Owner, l.Func = owner(name), name
		l.Delay += time.Duration(s.Value[1])
		byFunc[name] = l
	}
	return slices.SortedFunc(maps.Values(byFunc), func(a, b Lock) int { return cmp.Compare(b.Delay, a.Delay) })
}

// holder is the innermost function that is not the lock's own. The runtime has locks
// of its own (the allocator's, those of channels and timers), and a sync.Pool has one,
// which it takes when a collection has emptied it.
func holder(s *profile.Sample) string {
	name := "runtime"
	for _, at := range s.Location {
		for _, line := range at.Line {
			name = line.Function.Name
			if name == "runtime.unlock" || name == "runtime.mallocgc" {
				return name
			}
			if strings.HasPrefix(name, "sync.(*Pool).") {
				return name
			}
			if !strings.HasPrefix(name, "runtime.") && !strings.HasPrefix(name, "sync.") && !strings.HasPrefix(name, "internal/") {
				return name
			}
		}
	}
	return name
}

func owner(name string) string {
	const own = "github.com/fedhttp/fedhttp"
	switch {
	case strings.HasPrefix(name, own+"."), strings.HasPrefix(name, own+"/internal/"):
		return "fedhttp"
	case strings.HasPrefix(name, "github.com/sony/gobreaker"):
		return "gobreaker"
	case strings.HasPrefix(name, own+"/bench"), strings.HasPrefix(name, "main."), strings.HasPrefix(name, "testing."):
		return "harness"
	}
	return "other"
}
