//go:build !race

package fedhttp_test

// raceEnabled says that the race detector is on, which allocates for its own
// purposes and makes everything larger.
const raceEnabled = false
