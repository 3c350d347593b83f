//go:build unix

package fedstatus

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// browser is a headless Chromium, told what to do over a pipe in the DevTools
// protocol: that shows the page as it is, with its Content-Security-Policy in
// force, at any width, and everything that happened while it was loaded.
type browser struct {
	in *os.File

	mu      sync.Mutex
	lastID  int
	answers map[int]chan message
	events  map[string][]message // by session
	news    chan struct{}        // closed at the next event
	gone    chan struct{}        // closed when it has ended
}

type message struct {
	ID        int             `json:"id"`
	SessionID string          `json:"sessionId"`
	Method    string          `json:"method"`
	Params    json.RawMessage `json:"params"`
	Result    json.RawMessage `json:"result"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// startBrowser skips the test where there is no Chromium, but in CI.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("CI needs Chromium (Debian's package chromium): %v", err)
		}
		t.Skip("there is no Chromium (Debian's package chromium)")
	}
	profile, err := os.MkdirTemp("", "fedstatus-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	toBrowser, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, fromBrowser, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--user-data-dir="+profile, "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{toBrowser, fromBrowser}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its children end with it
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = toBrowser.Close(), fromBrowser.Close()
	b := &browser{
		in: in, answers: make(map[int]chan message), events: make(map[string][]message),
		news: make(chan struct{}), gone: make(chan struct{}),
	}
	go b.read(out)
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		<-b.gone
		_, _ = in.Close(), out.Close()
		_ = os.RemoveAll(profile)
	})
	return b
}

func (b *browser) read(out *os.File) {
	defer close(b.gone)
	messages := bufio.NewReader(out)
	for {
		raw, err := messages.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(raw[:len(raw)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if m.ID != 0 {
			b.answers[m.ID] <- m
			delete(b.answers, m.ID)
		} else {
			b.events[m.SessionID] = append(b.events[m.SessionID], m)
			close(b.news)
			b.news = make(chan struct{})
		}
		b.mu.Unlock()
	}
}

const patience = time.Minute // far beyond what any step takes

// call sends a command and decodes its result, if one is wanted.
func (b *browser) call(t *testing.T, session, method string, params, result any) {
	t.Helper()
	answer := make(chan message, 1)
	b.mu.Lock()
	b.lastID++
	id := b.lastID
	b.answers[id] = answer
	b.mu.Unlock()
	command := map[string]any{"id": id, "method": method}
	if session != "" {
		command["sessionId"] = session
	}
	if params != nil {
		command["params"] = params
	}
	raw, err := json.Marshal(command)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.in.Write(append(raw, 0)); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	select {
	case m := <-answer:
		if m.Error != nil {
			t.Fatalf("%s: %s", method, m.Error.Message)
		}
		if result == nil {
			return
		}
		if err := json.Unmarshal(m.Result, result); err != nil {
			t.Fatalf("%s: %v in %s", method, err, m.Result)
		}
	case <-b.gone:
		t.Fatalf("%s: the browser has ended", method)
	case <-time.After(patience):
		t.Fatalf("%s: no answer in %v", method, patience)
	}
}

// view is how a page is looked at.
type view struct {
	width     int
	dark      bool
	bypassCSP bool
}

// tab is a page that was loaded.
type tab struct {
	*browser
	session string
}

// open loads the URL in a tab of its own, and waits until it has.
func (b *browser) open(t *testing.T, url string, v view) *tab {
	t.Helper()
	var target struct {
		TargetID string `json:"targetId"`
	}
	b.call(t, "", "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	b.call(t, "", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	p := &tab{b, attached.SessionID}
	for _, domain := range []string{"Page", "Log", "Runtime", "Network", "DOM", "Accessibility"} {
		p.do(t, domain+".enable", nil, nil)
	}
	scheme := "light"
	if v.dark {
		scheme = "dark"
	}
	p.do(t, "Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
	}, nil)
	p.do(t, "Emulation.setDeviceMetricsOverride", map[string]any{
		"width": v.width, "height": 800, "deviceScaleFactor": 1, "mobile": v.width < 600,
	}, nil)
	p.do(t, "Emulation.setScrollbarsHidden", map[string]any{"hidden": true}, nil)
	p.do(t, "Page.setBypassCSP", map[string]any{"enabled": v.bypassCSP}, nil)
	p.do(t, "Page.navigate", map[string]any{"url": url}, nil)
	p.wait(t, "Page.loadEventFired", "")
	t.Cleanup(func() { b.call(t, "", "Target.closeTarget", map[string]any{"targetId": target.TargetID}, nil) })
	return p
}

func (p *tab) do(t *testing.T, method string, params, result any) {
	t.Helper()
	p.call(t, p.session, method, params, result)
}

// wait waits for an event of the name that has the text in it.
func (p *tab) wait(t *testing.T, method, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		p.mu.Lock()
		news := p.news
		p.mu.Unlock()
		for _, event := range p.seen(method) {
			if strings.Contains(event, text) {
				return
			}
		}
		select {
		case <-news:
		case <-ctx.Done():
			t.Fatalf("%s: has not come in %v; trouble: %.500q", method, patience, p.trouble())
		}
	}
}

// seen returns what is known of the events so far that have one of the names.
func (p *tab) seen(methods ...string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, m := range p.events[p.session] {
		for _, method := range methods {
			if m.Method == method {
				all = append(all, fmt.Sprintf("%s %s", m.Method, m.Params))
			}
		}
	}
	return all
}

// trouble is everything that a page without script, and without anything from
// elsewhere, does not do: errors, reports of the Content-Security-Policy,
// dialogs, console messages, and requests but the one for the page.
func (p *tab) trouble() []string {
	all := p.seen("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Page.javascriptDialogOpening")
	for i, request := range p.seen("Network.requestWillBeSent") {
		if i > 0 && !strings.Contains(request, "favicon.ico") {
			all = append(all, request)
		}
	}
	return all
}

// eval evaluates an expression in the page and decodes its value. (The page's
// policy does not bind the DevTools.)
func (p *tab) eval(t *testing.T, expression string, value any) {
	t.Helper()
	var answer struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails json.RawMessage `json:"exceptionDetails"`
	}
	p.do(t, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &answer)
	if answer.ExceptionDetails != nil {
		t.Fatalf("%s: %s", expression, answer.ExceptionDetails)
	}
	if err := json.Unmarshal(answer.Result.Value, value); err != nil {
		t.Fatalf("%s: %v in %s", expression, err, answer.Result.Value)
	}
}

// screenshot returns the whole page as a PNG.
func (p *tab) screenshot(t *testing.T) []byte {
	t.Helper()
	var shot struct {
		Data []byte `json:"data"`
	}
	p.do(t, "Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &shot)
	return shot.Data
}
