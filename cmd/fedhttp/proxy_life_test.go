package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

// TestProxyStreams has each side wait for the other: what is held back by anything
// between them ends the test.
func TestProxyStreams(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	peer.Otherwise(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex()
		w.WriteHeader(http.StatusOK)
		_ = control.Flush()
		lines := bufio.NewReader(r.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, "got "+line)
			_ = control.Flush()
		}
	})
	p := startProxy(t, "-peers", peersOf(t, peer))
	body, send := io.Pipe()
	// A client whose body does not come is stuck, whatever its timeout.
	defer time.AfterFunc(patience, func() { send.Close() }).Stop()
	req, err := http.NewRequest("POST", p.url+"/org-b/chat", body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if !strings.HasPrefix(resp.Header.Get(decisionHeader), "outcome=delivered") {
		t.Errorf("%q", resp.Header)
	}
	answers := bufio.NewReader(resp.Body)
	for i := range 20 {
		fmt.Fprintf(send, "line %d\n", i)
		if got, err := answers.ReadString('\n'); err != nil || got != fmt.Sprintf("got line %d\n", i) {
			t.Fatalf("%d: %q, %v", i, got, err)
		}
	}
	send.Close()
	if rest, err := io.ReadAll(answers); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestProxyFlushes: what there is of an answer is passed on, also where its length
// is known.
func TestProxyFlushes(t *testing.T) {
	t.Parallel()
	more := make(chan bool)
	peer := newPeer(t, fedtest.Config{})
	peer.Otherwise(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "9")
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-more:
			_, _ = io.WriteString(w, " more")
		case <-r.Context().Done():
		}
	})
	p := startProxy(t, "-peers", peersOf(t, peer))
	resp, err := p.client.Get(p.url + "/org-b/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	half := make([]byte, 4)
	if _, err := io.ReadFull(resp.Body, half); err != nil || string(half) != "half" {
		t.Fatalf("%q, %v", half, err)
	}
	close(more)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != " more" {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestProxyCutShort: an answer that breaks off breaks off for the client too.
func TestProxyCutShort(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	peer.Otherwise(fedtest.Wire("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"))
	p := startProxy(t, "-peers", peersOf(t, peer))
	resp, err := p.client.Get(p.url + "/org-b/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) || string(body) != "half" {
		t.Errorf("%q, %v", body, err)
	}
}

// TestProxyStops: calls that are on their way end, those that are held are let go
// of unsent, new ones are not taken.
func TestProxyStops(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan bool), make(chan bool)
	peer := newPeer(t, fedtest.Config{})
	peer.Otherwise(func(w http.ResponseWriter, _ *http.Request) {
		arrived <- true
		<-release
		_, _ = io.WriteString(w, "whole")
	})
	p := startProxy(t, "-peers", peersOf(t, peer), "-policies", write(t, "policies.yaml", ""))
	if a := p.do(t, "GET", healthPath, nil); a.StatusCode != 200 || a.body != "ok\n" {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	if a := p.do(t, "POST", healthPath, nil); a.StatusCode != 405 {
		t.Errorf("%d", a.StatusCode)
	}
	answers := make(chan answer, 2)
	go func() {
		answers <- p.do(t, "GET", "/org-b/held", nil, headerCapability, "c", headerObligations, "residency=eu")
	}()
	eventually(t, func() bool {
		a := p.do(t, "GET", statusPath, nil, "Accept", "application/json")
		var status struct{ Summary struct{ Held int } }
		return a.StatusCode == 200 && json.Unmarshal([]byte(a.body), &status) == nil && status.Summary.Held == 1
	})
	whole := make(chan answer, 1)
	go func() { whole <- p.do(t, "GET", "/org-b/long", nil) }()
	<-arrived
	p.stop()
	a := <-answers
	if got := a.problem(t); got.Status != 503 || got.Outcome != "policy_unresolved" || got.Reason != "closed" || got.Sent != "no" {
		t.Errorf("%+v", got)
	}
	eventually(t, func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	select {
	case code := <-p.code:
		t.Fatalf("ended with %d, and a call is on its way", code)
	default:
	}
	close(release)
	if a := <-whole; a.StatusCode != 200 || a.body != "whole" {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
}

func TestProxyGrace(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	arrived := make(chan bool, 1)
	peer.Otherwise(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- true
		<-r.Context().Done()
	})
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	code := make(chan int, 1)
	logs := &lockedBuffer{}
	go func() {
		code <- run(ctx, []string{"proxy", "-listen", "127.0.0.1:0", "-grace", "1ms", "-p", peersOf(t, peer)}, streams{nil, in, logs})
	}()
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		resp, err := http.Get(strings.TrimSpace(url) + "/org-b/")
		if err == nil {
			resp.Body.Close()
		}
	}()
	<-arrived
	stop()
	if c := <-code; c != exitFailed || !strings.Contains(logs.String(), "broken off") {
		t.Errorf("exit code %d: %s", c, logs)
	}
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); {
		if time.Now().After(deadline) {
			t.Fatal("it did not come to it in time")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestProxyReloads changes the files under a gateway that runs.
func TestProxyReloads(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	terms := map[string]string{"residency": "eu"}
	offer := fedtest.Advertisement{Capability: "summarize", Epoch: 1, Digest: fedtest.Digest(terms), Terms: terms}
	peer.Agree("", offer)
	policies := write(t, "policies.yaml", "")
	peers := peersOf(t, peer)
	p := startProxy(t, "-peers", peers, "-policies", policies)

	held := make(chan answer, 1)
	go func() {
		held <- p.do(t, "GET", "/org-b/summarize", nil, headerCapability, "summarize", headerObligations, "residency=eu")
	}()
	eventually(t, func() bool {
		return strings.Contains(p.do(t, "GET", statusPath, nil, "Accept", "application/json").body, `"held":1`)
	})
	agreed := fmt.Sprintf("policies:\n  - {peer: org-b, capability: summarize, epoch: 1, digest: %q, terms: {residency: eu}}\n", offer.Digest)
	if err := os.WriteFile(policies, []byte(agreed), 0o600); err != nil {
		t.Fatal(err)
	}
	if a := <-held; a.StatusCode != 200 || !strings.HasPrefix(a.decision, "outcome=delivered") {
		t.Errorf("%d %s %s", a.StatusCode, a.decision, a.body)
	}
	if err := os.WriteFile(policies, []byte("policies: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		return p.do(t, "GET", "/org-b/summarize", nil, headerCapability, "summarize", headerObligations, "residency=eu", headerPolicyWait, "0s").StatusCode == 503
	})
	if err := os.WriteFile(peers, []byte("peers:\n  - {id: org-new, origins: ["+peer.URL+"]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return p.do(t, "GET", "/org-new/", nil).StatusCode == 200 })
	if a := p.do(t, "GET", "/org-b/", nil); a.StatusCode != 404 {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
}

func TestProxyListens(t *testing.T) {
	t.Parallel()
	peers := write(t, "peers.yaml", onePeer)
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "registry.example:0", "127.0.0.1", ""} {
		if r := runWith(t, "", "proxy", "-p", peers, "-listen", address); r.code != exitUsage || r.out != "" {
			t.Errorf("%q: %+v", address, r)
		}
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	runWith(t, "", "proxy", "-p", peers, "-listen", taken.Addr().String()).want(t, exitFailed, "in use")
	runWith(t, "", "proxy", "-p", write(t, "peers.yaml", "peers: x"), "-listen", "127.0.0.1:0").want(t, exitFailed, "peers.yaml:1:")

	// With --allow-remote any name will do, but for the status page.
	peer := newPeer(t, fedtest.Config{})
	p := startProxy(t, "-peers", peersOf(t, peer), "-allow-remote", "-listen", "127.0.0.1:0")
	if a := p.do(t, "GET", "/org-b/", nil, "Host", "gateway.example"); a.StatusCode != 200 {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
}
