package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// browser is a page in headless Chromium, driven over the pipes of the DevTools
// protocol: one JSON message, ended by a zero byte, after the other.
type browser struct {
	t       *testing.T
	in      *os.File
	out     *bufio.Reader
	session string
	last    int
	// events came while an answer was awaited, oldest first.
	events []message
}

type message struct {
	ID      int             `json:"id"`
	Session string          `json:"sessionId"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

// findChromium skips the test where there is no Chromium, but not in CI.
func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("no chromium: install Debian's package of that name")
	}
	t.Skip("no chromium")
	return ""
}

// openChromium starts Chromium with an empty page, until the test ends.
func openChromium(t *testing.T) *browser {
	t.Helper()
	path := findChromium(t)
	theirIn, ourIn, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ourOut, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path,
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--force-color-profile=srgb", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4, where Chromium looks for them
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	// An answer that does not come must not hang the test.
	hung := time.AfterFunc(3*time.Minute, func() { _ = cmd.Process.Kill() })
	b := &browser{t: t, in: ourIn, out: bufio.NewReader(ourOut)}
	t.Cleanup(func() {
		hung.Stop()
		ourIn.Close() // Chromium ends with its pipe
		_ = cmd.Wait()
		ourOut.Close()
		if t.Failed() {
			says := stderr.Bytes()
			t.Logf("Chromium says in the end:\n%s", says[max(0, len(says)-2000):])
		}
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	b.call("Page.enable", nil, nil)
	b.call("Network.enable", nil, nil)
	b.call("Log.enable", nil, nil)
	return b
}

func (b *browser) read() message {
	b.t.Helper()
	raw, err := b.out.ReadBytes(0)
	if err != nil {
		b.t.Fatalf("Chromium: %v", err)
	}
	var m message
	if err := json.Unmarshal(raw[:len(raw)-1], &m); err != nil {
		b.t.Fatal(err)
	}
	return m
}

// call calls a method of the protocol, and reads its result unless that is nil.
func (b *browser) call(method string, params map[string]any, result any) {
	b.t.Helper()
	b.last++
	call := map[string]any{"id": b.last, "method": method, "params": params}
	if params == nil {
		call["params"] = struct{}{}
	}
	if b.session != "" {
		call["sessionId"] = b.session
	}
	raw, err := json.Marshal(call)
	if err == nil {
		_, err = b.in.Write(append(raw, 0))
	}
	if err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	for {
		m := b.read()
		switch {
		case m.ID == 0:
			b.events = append(b.events, m)
		case m.ID != b.last:
		case m.Error != nil:
			b.t.Fatalf("%s: %s", method, m.Error)
		case result != nil:
			if err := json.Unmarshal(m.Result, result); err != nil {
				b.t.Fatalf("%s: %v", method, err)
			}
			return
		default:
			return
		}
	}
}

// await waits for an event of the page.
func (b *browser) await(method string) {
	b.t.Helper()
	for {
		for _, e := range b.events {
			if e.Method == method {
				return
			}
		}
		b.events = append(b.events, b.read())
	}
}

// open loads the file and waits until all is there.
func (b *browser) open(file string) {
	b.t.Helper()
	path, err := filepath.Abs(file)
	if err != nil {
		b.t.Fatal(err)
	}
	b.events = nil
	b.call("Page.navigate", map[string]any{"url": (&url.URL{Scheme: "file", Path: path}).String()}, nil)
	b.await("Page.loadEventFired")
}

// resize sets the size of the window, and whether the user likes it dark.
func (b *browser) resize(width, height int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
	}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
	}, nil)
}

// eval reads the value of a JavaScript expression into v. It is run by the
// debugger, so the page's policy does not stand in its way.
func (b *browser) eval(expression string, v any) {
	b.t.Helper()
	var result struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &result)
	if result.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, result.ExceptionDetails)
	}
	if err := json.Unmarshal(result.Result.Value, v); err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
}

// picture takes a picture of the whole page, and keeps it as name.png where
// the environment names a folder for that.
func (b *browser) picture(name string) image.Image {
	b.t.Helper()
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &shot)
	raw, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	if folder := os.Getenv("PICTURES"); folder != "" {
		if err := os.WriteFile(filepath.Join(folder, name+".png"), raw, 0o600); err != nil {
			b.t.Error(err)
		}
	}
	img, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		b.t.Fatal(err)
	}
	return img
}

// requested are the URLs that were asked for since the page was opened, and
// complaints what the browser had to say of the page.
func (b *browser) requested() (urls, complaints []string) {
	b.t.Helper()
	for _, e := range b.events {
		var params struct {
			Request struct{ URL string }
			Entry   struct{ Text string }
		}
		if err := json.Unmarshal(e.Params, &params); err != nil {
			b.t.Fatal(errors.Join(err, fmt.Errorf("%s", e.Params)))
		}
		switch e.Method {
		case "Network.requestWillBeSent":
			urls = append(urls, strings.SplitN(params.Request.URL, "?", 2)[0])
		case "Log.entryAdded":
			complaints = append(complaints, params.Entry.Text)
		}
	}
	return urls, complaints
}
