package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFilesTooLarge: what never ends is not read for ever, whichever flag names it. The error
// has the flag, the file, the bound and what to do.
func TestFilesTooLarge(t *testing.T) {
	t.Parallel()
	peers, pem := write(t, "peers.yaml", onePeer), write(t, "cert.pem", "x")
	large := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, maxData+1); err != nil {
		t.Fatal(err)
	}
	post := []string{"post", "-peers", peers, "https://registry.b.example/"}
	fleet := []string{"escalations", "-nats", "tls://127.0.0.1:1"}
	for _, c := range []struct {
		on    []string
		args  []string
		bound int
		want  string // behind the bound
	}{
		{post, []string{"-policies", large}, maxFile, "leave out what has expired"},
		{post, []string{"-anchors", large}, maxFile, "leave out what has expired"},
		{post, []string{"-cacert", large}, maxPEM, "name a file of the authorities' certificates alone"},
		{post, []string{"-cert", large}, maxPEM, "name a file of our certificate and its chain alone"},
		{post, []string{"-cert", pem, "-key", large}, maxPEM, "name a file of the key alone"},
		{post, []string{"-data", "@" + large}, maxData, "send it through fedhttp proxy"},
		{post, []string{"-data-binary", "@" + large}, maxData, "send it through fedhttp proxy"},
		{fleet, []string{"-creds", large}, maxFile, "name a file of the credentials alone"},
		{fleet, []string{"-tls-ca", large}, maxPEM, "name a file of the authorities' certificates alone"},
		{fleet, []string{"-tls-cert", large}, maxPEM, "name a file of our certificate and its chain alone"},
		{fleet, []string{"-tls-cert", pem, "-tls-key", large}, maxPEM, "name a file of the key alone"},
	} {
		flag := c.args[len(c.args)-2]
		want := fmt.Sprintf("fedhttp: -%s: %s is larger than %d bytes; %s", flag, large, c.bound, c.want)
		runWith(t, "", append(c.on[:len(c.on):len(c.on)], c.args...)...).want(t, exitFailed, want)
	}
	runWith(t, "", "explain", "-peers", peers, large).want(t, exitFailed, fmt.Sprintf("fedhttp: %s is larger than %d bytes; leave out all but", large, maxInput))
	runWith(t, "", "check", large).want(t, exitFailed, large+":1:1: is larger than 1048576 bytes; split it, or write it shorter")
}

// zeros never ends, as /dev/zero.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestReadAll(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   io.Reader
		want string
	}{
		"as much as may be": {strings.NewReader("1234"), ""},
		"one byte more":     {strings.NewReader("12345"), "stdin is larger than 4 bytes; stop"},
		"without an end":    {zeros{}, "stdin is larger than 4 bytes; stop"},
	} {
		data, err := readAll(c.in, "stdin", 4, "stop")
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want || err == nil && string(data) != "1234" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
}
