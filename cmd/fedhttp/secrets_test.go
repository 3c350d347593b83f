package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fedhttp/fedhttp/fedtest"
)

// TestSecretsOfTheCommandLine: what cannot be understood is not repeated where it may be a
// secret.
func TestSecretsOfTheCommandLine(t *testing.T) {
	t.Parallel()
	peers := write(t, "peers.yaml", onePeer)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"https://user:SEC/RET@registry.b.example/"}, "that is no URL; want one such as https://registry.b.example/v1/tasks (in a password, special characters are percent-encoded)"},
		{[]string{"https://user:SEC#RET@registry.b.example/"}, "that is no URL"},
		{[]string{"user:SECRET@registry.b.example/"}, "that is no URL"},
		{[]string{"-H", "Authorization: Bearer SECRET\r", "https://registry.b.example/"}, `-H "Authorization": the value has control characters; want "Name: value"`},
		{[]string{"-H", "Authorization Bearer SECRET", "https://registry.b.example/"}, `-H "Authorization": want "Name: value"`},
		{[]string{"-H", "Authorization Bearer: SECRET", "https://registry.b.example/"}, `-H "Authorization": want "Name: value"`},
	} {
		r := runWith(t, "", append([]string{"get", "-peers", peers}, c.args...)...)
		r.want(t, exitUsage, "fedhttp: "+c.want)
		if strings.Contains(r.err, "SEC") || strings.Contains(r.err, "RET") {
			t.Errorf("%q: %s", c.args, r.err)
		}
	}
}

// TestSecretsOfTelemetry: of variables of OpenTelemetry's that are wrong the log has what
// is wrong, in its own form, and no value.
func TestSecretsOfTelemetry(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	get := func(env ...string) (string, error) {
		program := exec.CommandContext(t.Context(), os.Args[0], "get", "-peers", peersOf(t, peer), peer.URL)
		program.Env = append(append(os.Environ(), asProgram+"=1", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"), env...)
		out, err := program.CombinedOutput()
		if strings.Contains(string(out), "SECRET") {
			t.Errorf("%q: %s", env, out)
		}
		return string(out), err
	}
	for variable, want := range map[string]string{
		"OTEL_EXPORTER_OTLP_HEADERS=authorization: SECRET":                      `level=WARN msg="telemetry: see to the variables that begin with OTEL_" what="parse headers" error="missing '="`,
		"OTEL_EXPORTER_OTLP_HEADERS=authorization=SECRET%zz":                    `what="escape header value" error="invalid URL escape \"%zz\""`,
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://SECRET:SECRET@127.0.0.1:x/y": `what="parse url" error="invalid port \":x\" after host"`,
	} {
		if out, err := get(variable); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v: %q is missing in\n%s", variable, err, want, out)
		}
	}
	for _, variable := range []string{"OTEL_TRACES_EXPORTER=jaeger", "OTEL_EXPORTER_OTLP_PROTOCOL=http"} {
		name, _, _ := strings.Cut(variable, "=")
		if out, err := get(variable); err == nil || !strings.Contains(out, "fedhttp: see to OTEL_TRACES_EXPORTER") || !strings.Contains(out, name) {
			t.Errorf("%s: %v: %s", variable, err, out)
		}
	}
}
