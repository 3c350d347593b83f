package fedhttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"time"
)

// redirecting redirects to /end with the status of the path, and echoes there.
func redirecting(w http.ResponseWriter, r *http.Request) {
	var status int
	if n, _ := fmt.Sscanf(r.URL.Path, "/%d", &status); n == 1 {
		http.SetCookie(w, &http.Cookie{Name: "seen", Value: r.URL.Path[1:], Path: "/"})
		http.Redirect(w, r, "/end", status)
		return
	}
	echoBody(w, r)
}

// upgrading takes the connection over and speaks in capitals.
func upgrading(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "capitals" {
		w.WriteHeader(http.StatusUpgradeRequired)
		return
	}
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: capitals\r\n\r\n")
	for {
		line, err := buf.ReadString('\n')
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, strings.ToUpper(line))
	}
}

func upgradeAndTalk(x *exchangeRun) {
	req := x.request(http.MethodGet, "/", nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "capitals")
	x.doThen(req, func(r io.Reader) ([]byte, error) {
		both, ok := r.(io.ReadWriteCloser)
		if !ok {
			x.note("a %T cannot be written to", r)
			return nil, nil
		}
		in := bufio.NewReader(both)
		var said strings.Builder
		for range 3 {
			if _, err := io.WriteString(both, "hello\n"); err != nil {
				return nil, err
			}
			line, err := in.ReadString('\n')
			if err != nil {
				return nil, err
			}
			said.WriteString(line)
		}
		return []byte(said.String()), nil
	})
}

func exchangesOfClients() []exchange {
	redirects := func(x *exchangeRun) {
		jar, err := cookiejar.New(nil)
		if err != nil {
			x.t.Fatal(err)
		}
		x.client.Jar = jar
		for _, status := range []int{301, 302, 303, 307, 308} {
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut} {
				var body io.Reader
				if method == http.MethodPost || method == http.MethodPut {
					body = strings.NewReader("again")
				}
				x.do(x.request(method, fmt.Sprintf("/%d", status), body))
			}
			x.do(x.request(http.MethodPost, fmt.Sprintf("/%d", status), newOpaqueBody(strings.NewReader("once"))))
		}
		at, err := url.Parse(x.url)
		if err != nil {
			x.t.Fatal(err)
		}
		x.note("cookies: %v", jar.Cookies(at))
	}
	stopping := func(x *exchangeRun) {
		for _, why := range []error{http.ErrUseLastResponse, errBodyBroke} {
			x.client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
				x.note("to %s after %d, sent by %v", r.URL, len(via), r.Response.Status)
				return why
			}
			x.do(x.request(http.MethodGet, "/302", nil))
		}
	}
	basicAuth := func(x *exchangeRun) {
		req := x.request(http.MethodGet, "/", nil)
		req.URL.User = url.UserPassword("user", "pass")
		x.do(req)
	}
	canceled := func(x *exchangeRun) {
		ctx, cancel := context.WithCancelCause(x.t.Context())
		req := x.request(http.MethodGet, "/", nil).WithContext(ctx)
		x.doThen(req, func(r io.Reader) ([]byte, error) {
			p := make([]byte, 4)
			_, err := io.ReadFull(r, p)
			if err != nil {
				return p, err
			}
			cancel(errors.New("enough"))
			_, err = io.ReadAll(r)
			return p, err
		})
	}
	hanging := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "one ")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	silent := func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/first" {
			<-r.Context().Done()
		}
	}
	timeout := func(x *exchangeRun) {
		x.do(x.request(http.MethodGet, "/first", nil)) // so that it is not spent on the connection
		x.client.Timeout = 50 * time.Millisecond
		req := x.request(http.MethodGet, "/", nil)
		resp, err := x.client.Do(req)
		if resp != nil {
			resp.Body.Close()
		}
		var net net.Error
		x.note("timeout: %t, deadline: %t", errors.As(err, &net) && net.Timeout(), errors.Is(err, context.DeadlineExceeded))
		x.seen.Client = append(x.seen.Client, answerSeen{})
	}
	responseTimeout := func(t *http.Transport) { t.ResponseHeaderTimeout = 50 * time.Millisecond }

	all := []exchange{
		{name: "switching protocols", handler: upgrading, client: upgradeAndTalk},
	}
	for _, e := range []exchange{
		{name: "redirects and cookies", handler: redirecting, client: redirects},
		{name: "redirects stopped", handler: redirecting, client: stopping},
		{name: "basic auth", handler: echoBody, client: basicAuth},
		{name: "canceled in the body", handler: hanging, client: canceled},
		{name: "client timeout", handler: silent, client: timeout, unseen: true},
		{name: "header timeout", handler: silent, client: exchangeGet, setup: responseTimeout, unseen: true},
	} {
		second := e
		second.name, second.http2 = e.name+", HTTP/2", true
		all = append(all, e, second)
	}
	return all
}

// exchangesThatBreak end before they should.
func exchangesThatBreak() []exchange {
	abort := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "one ")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	noAnswer := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}
	both := func(x *exchangeRun) {
		exchangeGet(x)
		x.do(x.request(http.MethodPost, "/", strings.NewReader("task")))
	}
	small := func(t *http.Transport) { t.MaxResponseHeaderBytes = 1000 }
	large := func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Large", strings.Repeat("v", 10_000)) }
	all := []exchange{
		{name: "cut by length", wire: "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nnot all", client: both},
		{name: "cut chunk", wire: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nnot", client: both},
		{name: "no last chunk", wire: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nparts\r\n", client: both},
		{name: "broken chunk", wire: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nparts\r\n", client: both},
		{name: "cut gzip", wire: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Encoding: gzip\r\nContent-Length: 10\r\n\r\n\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff", client: both},
		{name: "no gzip", wire: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnone", client: both},
		{name: "cut header", wire: "HTTP/1.1 200 OK\r\nX-Cut", client: both},
		{name: "no HTTP", wire: "garbage\r\n\r\n", client: both},
		{name: "bad header", wire: "HTTP/1.1 200 OK\r\nbad header\r\n\r\n", client: both},
		{name: "bad status", wire: "HTTP/1.1 abc OK\r\n\r\n", client: both},
		{name: "two lengths", wire: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", client: both},
	}
	for _, e := range []exchange{
		{name: "aborted in the body", handler: abort, client: both},
		{name: "no answer", handler: noAnswer, client: both},
		{name: "header too large", handler: large, client: both, setup: small},
	} {
		second := e
		second.name, second.http2 = e.name+", HTTP/2", true
		all = append(all, e, second)
	}
	return all
}
