package fedhttp_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// The frame types and flags of HTTP/2 (RFC 9113) that the tests speak.
const (
	frameData, frameHeaders, frameReset, frameSettings, framePing, frameGoAway, frameWindow, frameContinuation = 0, 1, 3, 4, 6, 7, 8, 9

	flagEndStream, flagAck, flagEndHeaders = 1, 1, 4

	codeProtocol, codeInternal, codeRefused = 1, 2, 7
)

// frame is one frame as it was read.
type frame struct {
	kind, flags byte
	stream      uint32
	payload     string
}

func (f frame) String() string {
	return fmt.Sprintf("type %d flags %#x stream %d: %x", f.kind, f.flags, f.stream, f.payload)
}

// framePeer speaks HTTP/2 frame by frame. It counts the requests that arrived
// whole, and asks answer what to do with the nth of them, from 1.
type framePeer struct {
	*rawServer
	whole  atomic.Int64
	answer func(c *frameConn, stream uint32, n int64)
	// onHeaders, where set before the first request, is called for each header
	// after which a body comes.
	onHeaders func(c *frameConn, stream uint32)
	// pongs, where set, has an element for each answer to a ping.
	pongs chan struct{}

	mu     sync.Mutex
	frames []frame // of requests, and the client's first settings
}

// newFramePeer starts one, over TLS or with prior knowledge.
func newFramePeer(tb testing.TB, secure bool, answer func(c *frameConn, stream uint32, n int64)) *framePeer {
	p := &framePeer{answer: answer}
	p.rawServer = listenRaw(tb, serverTLS(secure, "h2"), p.serve)
	return p
}

// frameBase returns a base that speaks HTTP/2 with a framePeer.
func frameBase(secure bool) *http.Transport {
	base := &http.Transport{TLSClientConfig: trusting(), Protocols: new(http.Protocols)}
	base.Protocols.SetHTTP2(secure)
	base.Protocols.SetUnencryptedHTTP2(!secure)
	return base
}

func (p *framePeer) serve(conn net.Conn) {
	preface := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	if _, err := io.ReadFull(conn, preface); err != nil {
		return
	}
	c := &frameConn{conn: conn}
	c.write(frameSettings, 0, 0, nil)
	settled := false
	for {
		f, err := readFrame(conn)
		if err != nil {
			return
		}
		switch f.kind {
		case frameSettings:
			if f.flags&flagAck == 0 {
				c.write(frameSettings, flagAck, 0, nil)
			}
			if !settled {
				p.keep(f)
			}
			settled = true
		case framePing:
			switch {
			case f.flags&flagAck == 0:
				c.write(framePing, flagAck, 0, []byte(f.payload))
			case p.pongs != nil:
				p.pongs <- struct{}{}
			}
		case frameHeaders, frameContinuation, frameData:
			p.keep(f)
			switch {
			case f.kind != frameContinuation && f.flags&flagEndStream != 0:
				p.answer(c, f.stream, p.whole.Add(1))
			case f.kind == frameHeaders && p.onHeaders != nil:
				p.onHeaders(c, f.stream)
			}
		}
	}
}

func (p *framePeer) keep(f frame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frames = append(p.frames, f)
}

// seen returns the frames that were kept so far.
func (p *framePeer) seen() []frame {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.frames)
}

func readFrame(r io.Reader) (frame, error) {
	var head [9]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
	if _, err := io.ReadFull(r, payload); err != nil {
		return frame{}, err
	}
	return frame{head[3], head[4], binary.BigEndian.Uint32(head[5:]), string(payload)}, nil
}

// frameConn is the server's side of a connection.
type frameConn struct {
	mu   sync.Mutex
	conn net.Conn
}

func (c *frameConn) write(kind, flags byte, stream uint32, payload []byte) {
	n := len(payload)
	f := append([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}, binary.BigEndian.AppendUint32(nil, stream)...)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.conn.Write(append(f, payload...)) // a client that is gone needs no answer
}

// ok answers 200, with no body.
func (c *frameConn) ok(stream uint32) {
	c.write(frameHeaders, flagEndHeaders|flagEndStream, stream, []byte{0x88}) // HPACK: the static :status 200
}

// goOn answers 100 Continue.
func (c *frameConn) goOn(stream uint32) {
	c.write(frameHeaders, flagEndHeaders, stream, []byte("\x08\x03100")) // HPACK: a literal :status
}

func (c *frameConn) reset(stream, code uint32) {
	c.write(frameReset, 0, stream, binary.BigEndian.AppendUint32(nil, code))
}

func (c *frameConn) goAway(last, code uint32) {
	c.write(frameGoAway, 0, 0, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, last), code))
}

// requestOf returns a GET, or a POST with a body that can be had again.
func requestOf(method, url string) *http.Request {
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader("a task")
	}
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		panic(err)
	}
	return req
}
