package main

import (
	"fmt"
	"strings"

	"github.com/fedhttp/fedhttp/bench"
)

// goalsTable is what a plain GET costs, beside the goals.
func goalsTable(r *results) string {
	var rows [][]string
	const plain = "/chain=fedhttp"
	for _, of := range []struct{ title, name, suffix string }{
		{"allocations beyond the stub", "allocations", plain},
		{"the same for a POST, which adds none", "allocations-of-POST", plain},
		{"allocations, of otelhttp's", "allocations-of-otelhttp", plain},
		{"bytes, of otelhttp's", "bytes-of-otelhttp", plain},
		{"time, of otelhttp's", "time-of-otelhttp", plain},
		{"allocations, of what one builds today", "allocations-of-today", plain},
		{"bytes, of what one builds today", "bytes-of-today", plain},
		{"time, of what one builds today", "time-of-today", plain},
		{"time over loopback, of bare net/http's", "time-of-bare-over-loopback", "/proto=h1/method=GET"},
	} {
		row := []string{of.title}
		for _, t := range gated {
			name := "Gate/" + of.name + "/trace=" + t.name + of.suffix
			measured, goal := r.get(name, "measured"), r.get(name, "goal")
			text := ratio(measured) + " of " + ratio(goal)
			if strings.HasPrefix(of.title, "allocations beyond") || strings.HasPrefix(of.title, "the same") {
				text = count(measured) + " of " + count(goal)
			}
			row = append(row, met(text, within(measured, goal)))
		}
		rows = append(rows, row)
	}
	return table(titles("measured, of at most", gated), rows)
}

// within reports whether a figure meets its goal. Counts are not quite exact, since the
// runtime allocates as well.
func within(measured, goal float64) bool { return measured <= goal*1.001 }

// target is a goal that is no ratio of chains.
type target struct {
	title, measured string
	met             bool
}

// How often garbage is collected when latency is measured: GOGC as for all that is
// measured in pairs, and what it is by default.
const (
	seldom = 1000
	often  = 100
)

// targetsTable is what else was promised.
func targetsTable(r *results) string {
	var rows [][]string
	for _, t := range targets(r) {
		rows = append(rows, []string{t.title, t.measured, yes(t.met)})
	}
	return table([]string{"goal", "measured", "met"}, rows)
}

func targets(r *results) (all []target) {
	add := func(title string, ok bool, format string, args ...any) {
		all = append(all, target{title, fmt.Sprintf(format, args...), ok})
	}
	for _, gogc := range []int{seldom, often} {
		for _, rate := range rates {
			p99 := func(chain string) float64 { return r.get(latencyOf(gogc, rate, "none", chain), "p99-turn-sec") }
			bare, again, ours := p99("bare"), p99("bare-again"), p99("fedhttp")
			add(fmt.Sprintf("p99 at %s requests/s, `GOGC` %d, within 10 %% of bare plus 50 µs", thousands(float64(rate)), gogc),
				ours <= 1.1*(bare+again)/2+50e-6, "%s; bare %s and %s", duration(ours), duration(bare), duration(again))
		}
	}
	for _, of := range []struct{ title, unit string }{
		{"an idle peer takes under 4 KiB, not called yet", "B/peer"}, {"the same once it was called, with metrics", "B/metered-peer"},
	} {
		idle := r.get("SetPeers/peers=10000", of.unit)
		add(of.title, idle < 4096, "%s", bytesOf(idle))
	}
	set := r.get("SetPeers/peers=10000", "sec/op")
	add("SetPeers of 10,000 in under 100 ms", set < 0.1, "%s", duration(set))
	one, many := curves[0].at(r, 1, "sec/op"), curves[0].at(r, 10_000, "sec/op")
	add("a call costs no more with 10,000 peers (the same one called)", many < 1.1*one, "%s, with one peer %s", duration(many), duration(one))
	key := r.get("BookFill/keys=1M", "B/key")
	add("a policy key takes under 100 B, at 1,000,000", key < 100, "%s", bytesOf(key))
	writes := "AuthorizeDuringWrites/writes=%d/of=book"
	rate := r.get(fmt.Sprintf(writes, 100_000), "writes/s")
	quiet, busy := r.get(fmt.Sprintf(writes, 0), "sec/op"), r.get(fmt.Sprintf(writes, 100_000), "sec/op")
	add("100,000 writes/s at 1,000,000 keys, readers unharmed (at most 1.5 times)", rate > 98_000 && busy < 1.5*quiet,
		"%s writes/s; a read %s, without writes %s", thousands(rate), duration(busy), duration(quiet))
	held := r.get("Held/tasks=100000", "B/task")
	add("a held call takes under 6 KiB, its http.Client call included", held < 6<<10, "%s", bytesOf(held))
	released := r.get("Held/tasks=100000", "awake-sec")
	add("100,000 held calls released in under 1 s", released < 1, "%s", duration(released))
	for _, direction := range []string{"up", "down"} {
		name := "Stream/direction=" + direction + "/chain="
		of, again, peak := r.get(name+"fedhttp", "of-bare"), r.get(name+"bare-again", "of-bare"), r.get(name+"fedhttp", "B-beyond-bare")
		add("1 GiB "+direction+": throughput within 3 % of bare, memory within 1 MiB", of >= 0.97 && peak <= 1<<20,
			"%s of bare (bare, once more: %s); %s KiB more", ratio(of), ratio(again), thousands(max(0, peak/1024)))
	}
	locks := ownLocks(r)
	add("no lock of fedhttp's own above 1 % of the delay", len(locks) == 0, "%s", orNone(locks))
	return all
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// ownLocks are fedhttp's locks that are above 1 % of the delay in any profile, with
// their highest shares.
func ownLocks(r *results) (locks []string) {
	highest := map[string]float64{}
	var order []string
	for _, name := range r.named("Lock/") {
		_, function, ours := strings.Cut(name, "/owner=fedhttp/func=")
		if !ours {
			continue
		}
		if _, known := highest[function]; !known {
			order = append(order, function)
		}
		highest[function] = max(highest[function], bench.Median(r.values["Lock/"+name]["%-of-delay"]))
	}
	for _, function := range order {
		locks = append(locks, fmt.Sprintf("`%s` %s %%", function, digits(highest[function])))
	}
	return locks
}
