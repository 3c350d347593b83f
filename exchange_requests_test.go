package fedhttp_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

var errBodyBroke = errors.New("the body broke")

// opaqueBody is a body that net/http knows nothing about, and tells when it is
// closed.
type opaqueBody struct {
	io.Reader
	once   sync.Once
	closed chan struct{}
}

func newOpaqueBody(r io.Reader) *opaqueBody {
	return &opaqueBody{Reader: r, closed: make(chan struct{})}
}

func (b *opaqueBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

// endReader ends, with err, when the server has begun with the request.
type endReader struct {
	x   *exchangeRun
	err error
}

func (r endReader) Read([]byte) (int, error) {
	select {
	case <-r.x.begun:
	case <-r.x.t.Context().Done():
	}
	return 0, r.err
}

// echo answers with what came.
func echoBody(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	_, _ = w.Write(body)
}

// unread answers, and does not read the body.
func unreadBodyHandler(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusRequestEntityTooLarge)
	_, _ = io.WriteString(w, "too large")
}

// posts sends one body after another, and waits until each was closed.
func posts(prepare func(*http.Request), bodies ...func(x *exchangeRun) io.Reader) func(*exchangeRun) {
	return func(x *exchangeRun) {
		for _, body := range bodies {
			b := body(x)
			req := x.request(http.MethodPost, "/", b)
			if prepare != nil {
				prepare(req)
			}
			x.do(req)
			if opaque, ok := b.(*opaqueBody); ok {
				<-opaque.closed // or the test hangs
			}
		}
	}
}

func textBody(*exchangeRun) io.Reader { return strings.NewReader("known length") }
func pipedBody(*exchangeRun) io.Reader {
	return newOpaqueBody(strings.NewReader("unknown length"))
}

// half is more than net/http keeps back, so that the server sees it.
var half = strings.Repeat("half of it ", 10_000)

func bodyThatBreaks(x *exchangeRun) io.Reader {
	return newOpaqueBody(io.MultiReader(strings.NewReader(half), endReader{x, errBodyBroke}))
}

func bodyThatEnds(x *exchangeRun) io.Reader {
	return newOpaqueBody(io.MultiReader(strings.NewReader(half), endReader{x, io.EOF}))
}

// fileBody is a file, which the system can send by itself.
func fileBody(x *exchangeRun) io.Reader {
	name := filepath.Join(x.t.TempDir(), "body")
	if err := os.WriteFile(name, []byte(strings.Repeat("file ", 100_000)), 0o600); err != nil {
		x.t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		x.t.Fatal(err)
	}
	return f
}

func exchangesOfRequests() []exchange {
	expecting := func(r *http.Request) { r.Header.Set("Expect", "100-continue") }
	long := func(t *http.Transport) { t.ExpectContinueTimeout = time.Hour }
	short := func(t *http.Transport) { t.ExpectContinueTimeout = time.Millisecond }
	ignoring := func(w http.ResponseWriter, r *http.Request) {
		// The server's own body would ask for the rest; this one waits until it comes.
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		body := make([]byte, r.ContentLength)
		if _, err := io.ReadFull(buf, body); err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: close\r\n\r\n"+string(body))
		}
	}
	length := func(n int64) func(*http.Request) { return func(r *http.Request) { r.ContentLength = n } }
	trailers := func(r *http.Request) {
		r.Trailer = http.Header{"X-Sum": nil}
		r.Body = &trailerBody{r.Body, r.Trailer}
		r.GetBody = nil
		r.ContentLength = -1
	}
	early := func(x *exchangeRun) {
		// The rest of the body comes only when the answer is there.
		reader, writer := io.Pipe()
		req := x.request(http.MethodPost, "/", reader)
		sent := make(chan error, 1)
		go func() {
			_, err := io.WriteString(writer, "start")
			sent <- err
		}()
		x.doThen(req, func(r io.Reader) ([]byte, error) {
			body := make([]byte, 5)
			if _, err := io.ReadFull(r, body); err != nil {
				return body, err
			}
			writer.Close()
			x.mu.Lock()
			x.handled() // the server has had the rest
			x.mu.Unlock()
			rest, err := io.ReadAll(r)
			return append(body, rest...), err
		})
		x.note("sent: %v", <-sent)
	}
	earlyHandler := func(w http.ResponseWriter, r *http.Request) {
		p := make([]byte, 5)
		_, _ = io.ReadFull(r.Body, p)
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 has it anyway
		_, _ = io.WriteString(w, "early")                    // of unknown length: it does not end before the request does
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(io.Discard, r.Body)
	}
	headers := func(x *exchangeRun) {
		req := x.request(http.MethodGet, "/path/%2f%20?q=%zz&b=1;2#frag", nil)
		req.Host = "other.example"
		req.Header = http.Header{"X-Twice": {"1", "2"}, "x-raw": {"lower"}, "User-Agent": {""}, "Cookie": {"a=b"}, "Authorization": {"secret"}}
		x.do(req)
		nilHeader := x.request(http.MethodGet, "/", nil)
		nilHeader.Header = nil
		x.do(nilHeader)
		x.do(x.request(http.MethodOptions, "/", nil))
		lower := x.request("get", "/", nil)
		x.do(lower)
		none := x.request("", "/", nil)
		none.Method = ""
		x.do(none)
		bad := x.request(http.MethodGet, "/", nil)
		bad.Header.Set("X-Bad", "a\nb")
		x.do(bad)
	}
	largeHeaders := func(x *exchangeRun) {
		req := x.request(http.MethodGet, "/", nil)
		for i := range 100 {
			req.Header.Add("X-Large", strings.Repeat("v", 5000+i))
		}
		x.do(req)
	}

	all := []exchange{
		{name: "Expect ignored", handler: ignoring, client: posts(expecting, textBody), setup: short},
	}
	for _, e := range []exchange{
		{name: "bodies", handler: echoBody, client: posts(nil,
			textBody, pipedBody,
			func(*exchangeRun) io.Reader { return nil },
			func(*exchangeRun) io.Reader { return http.NoBody },
			func(*exchangeRun) io.Reader { return strings.NewReader("") },
			func(*exchangeRun) io.Reader { return newOpaqueBody(strings.NewReader("")) },
		)},
		{name: "file", handler: echoBody, client: posts(length(500_000), fileBody)},
		{name: "file, chunked", handler: echoBody, client: posts(nil, fileBody)},
		{name: "request trailers", handler: echoBody, client: posts(trailers, textBody)},
		{name: "Expect granted", handler: echoBody, client: posts(expecting, textBody, pipedBody), setup: long},
		{name: "Expect refused", handler: unreadBodyHandler, client: posts(expecting, textBody), setup: long},
		{name: "answer before the body", handler: earlyHandler, client: early},
		{name: "body breaks", handler: echoBody, client: posts(nil, bodyThatBreaks), unseen: true},
		{name: "body breaks, known length", handler: echoBody, client: posts(length(1_000_000), bodyThatBreaks), unseen: true},
		{name: "length too long", handler: echoBody, client: posts(length(1_000_000), bodyThatEnds)},
		// A server that answered would race with the error of the write.
		{name: "length too short", handler: neverAnswers, client: posts(length(3), pipedBody), unseen: true},
		{name: "request headers", handler: echoBody, client: headers},
		{name: "large request headers", handler: echoBody, client: largeHeaders},
		{name: "Request.Close", handler: echoBody, client: func(x *exchangeRun) {
			for range 2 {
				req := x.request(http.MethodGet, "/", nil)
				req.Close = true
				x.do(req)
			}
		}},
	} {
		second := e
		second.name, second.http2 = e.name+", HTTP/2", true
		all = append(all, e, second)
	}
	return all
}

// trailerBody sets its trailer at its end.
type trailerBody struct {
	io.ReadCloser
	trailer http.Header
}

func (b *trailerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.trailer.Set("X-Sum", "42")
	}
	return n, err
}

// neverAnswers reads the body and waits for the client to give up.
func neverAnswers(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}
