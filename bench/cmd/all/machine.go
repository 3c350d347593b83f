package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	_ "github.com/fedhttp/fedhttp/bench" // for its versions
)

// header says what was measured and on what, as the configuration lines of Go's
// benchmark format. It names no machine and no path.
func header(quick bool) string {
	var b strings.Builder
	set := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s: %s\n", key, value)
		}
	}
	set("date", time.Now().UTC().Format(time.DateOnly))
	set("commit", commit())
	set("toolchain", runtime.Version())
	set("model", after("/proc/cpuinfo", "model name"))
	set("cores", fmt.Sprint(runtime.NumCPU()))
	var kib float64
	if _, err := fmt.Sscan(after("/proc/meminfo", "MemTotal"), &kib); err == nil {
		set("memory", fmt.Sprintf("%.0f GiB", kib/(1<<20)))
	}
	set("system", runtime.GOOS+"/"+runtime.GOARCH+kernel())
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		set("load", strings.Fields(string(load))[0])
	}
	if quick {
		set("quick", "yes")
	}
	for _, v := range versions() {
		set("version-"+v[0], v[1])
	}
	return b.String()
}

// after is what a file of "key : value" lines says of the key, "" where there is
// no such file.
func after(file, key string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// kernel is the class of the kernel: its first two numbers.
func kernel() string {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	numbers := strings.SplitN(string(text), ".", 3)
	if err != nil || len(numbers) < 3 {
		return ""
	}
	return ", kernel " + numbers[0] + "." + numbers[1]
}

func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--exclude=*").Output() //nolint:noctx // it ends at once
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// measured are the modules whose versions matter.
var measured = map[string]string{
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp": "otelhttp",
	"go.opentelemetry.io/otel/sdk":                                  "otel-sdk",
	"github.com/hashicorp/go-retryablehttp":                         "retryablehttp",
	"github.com/sony/gobreaker/v2":                                  "gobreaker",
	"github.com/failsafe-go/failsafe-go":                            "failsafe-go",
}

func versions() (found [][2]string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, m := range info.Deps {
		if name := measured[m.Path]; name != "" {
			found = append(found, [2]string{name, m.Version})
		}
	}
	slices.SortFunc(found, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return found
}
