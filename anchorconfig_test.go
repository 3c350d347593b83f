package fedhttp

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// What HTTPAnchorSource is told, and whom it asks because of it.

func TestHTTPAnchorsConfig(t *testing.T) {
	t.Parallel()
	_, err := NewHTTPAnchorSource(HTTPAnchors{MaxBytes: -1, Timeout: -time.Second, URLs: map[string]string{
		"userinfo":        "https://user:SECRET@b.example/anchor",
		"no URL":          "https://user:SECRET@b.example:port/",
		"plain":           "http://b.example/anchor?SECRET",
		"nearly loopback": "http://127.0.0.1.b.example/",
		"file":            "file:///etc/anchor",
		"relative":        "/anchor",
		"empty":           "",
		"opaque":          "https:b.example",
		"peer\n":          "https://b.example/1",
		"":                "https://b.example/2",
		"good":            "https://b.example/anchor?q=1",
		"loopback":        "http://127.1.2.3:80/",
		"loopback 6":      "http://[::1]/",
		"localhost":       "http://LOCALHOST:8080/",
	}})
	if err == nil {
		t.Fatal("no error")
	}
	if first, ok := errors.AsType[*ConfigError](err); !ok || first.Peer != -1 || first.Field != "Timeout" {
		t.Errorf("the first fault is %+v", first)
	}
	lines := strings.Split(err.Error(), "\n")
	for _, want := range [][2]string{
		{"MaxBytes: ", "-1 is negative"},
		{"Timeout: ", "-1s is negative"},
		{`URLs["userinfo"]: `, "has userinfo"},
		{`URLs["no URL"]: `, "is no URL"},
		{`URLs["plain"]: `, "http://b.example is plain http beyond loopback"},
		{`URLs["nearly loopback"]: `, "beyond loopback"},
		{`URLs["file"]: `, "want https"},
		{`URLs["relative"]: `, "want https"},
		{`URLs["empty"]: `, "want https"},
		{`URLs["opaque"]: `, "want https"},
		{`URLs["peer\n"]: `, "printable ASCII"},
		{`URLs[""]: `, "printable ASCII"},
	} {
		found := 0
		for _, line := range lines {
			if strings.HasPrefix(line, want[0]) && strings.Contains(line, want[1]) {
				found++
			}
		}
		vtWant(t, fmt.Sprint("faults as ", want), found, 1)
	}
	vtWant(t, "lines", len(lines), 13)
	if strings.Contains(err.Error(), "SECRET") {
		t.Errorf("%v shows a secret", err)
	}
	if _, err := NewHTTPAnchorSource(HTTPAnchors{}); err == nil || !strings.Contains(err.Error(), "URLs: want at least one") {
		t.Errorf("nothing configured: %v", err)
	}
}

// TestHTTPAnchorsVerify: the server must have a certificate that is issued for it,
// and that is not what it publishes.
func TestHTTPAnchorsVerify(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	ca := newTestCA(t, "ca")
	quiet := httptest.NewUnstartedServer(answerWith(pemType, pemOf(ca)))
	quiet.Config.ErrorLog = discardLog
	quiet.TLS = serving(ca.issue(t))
	quiet.StartTLS()
	defer quiet.Close()
	at := map[string]string{"b": quiet.URL + "/anchor"}
	s := newAnchors(t, HTTPAnchors{URLs: at, Roots: poolOf(ca)})
	fetch(t, s)
	fetch(t, s)
	late := x509.NewCertPool()
	s = newAnchors(t, HTTPAnchors{URLs: at, Roots: late})
	late.AddCert(ca.cert) // the source has its own
	var unknown x509.UnknownAuthorityError
	if err := fetchError(t, s, "certificate"); !errors.As(err, &unknown) {
		t.Errorf("roots that came later: %v", err)
	}
	for name, pool := range map[string]*x509.CertPool{"the system's": nil, "another's": poolOf(newTestCA(t, "other")), "nobody's": x509.NewCertPool()} {
		if err := fetchError(t, newAnchors(t, HTTPAnchors{URLs: at, Roots: pool}), "certificate"); !errors.As(err, &unknown) {
			t.Errorf("%s roots: %v", name, err)
		}
	}
}
