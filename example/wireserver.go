package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"math/big"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// warmPath is where a request gets an answer.
const warmPath = "/warm"

// wireServer is a server without net/http's: it counts each request that it has
// read whole, and treats it as its case says.
type wireServer struct {
	url    string
	roots  *x509.CertPool // to trust; nil: no TLS
	answer func(stream uint32) []byte
	whole  atomic.Int64

	warming atomic.Int64  // requests to warmPath still to come
	warm    chan struct{} // closed when they have

	listener *net.TCPListener
	ctx      context.Context // ends every connection
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

func startWire(ctx context.Context, c wireCase) (*wireServer, error) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	s := &wireServer{url: "http://" + listener.Addr().String(), answer: c.answer, warm: make(chan struct{}), listener: listener}
	s.warming.Store(int64(c.pooled))
	s.ctx, s.cancel = context.WithCancel(ctx)
	var config *tls.Config
	if s.answer != nil {
		certificate, err := selfSigned()
		if err != nil {
			s.close()
			return nil, err
		}
		s.url = "https://" + listener.Addr().String()
		s.roots = x509.NewCertPool()
		s.roots.AddCert(certificate.Leaf)
		config = &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}}
	}
	s.running.Go(func() { s.accept(config) })
	return s, nil
}

func (s *wireServer) accept(config *tls.Config) {
	defer s.listener.Close()
	defer context.AfterFunc(s.ctx, func() { s.listener.Close() })()
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.running.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(s.ctx, func() { conn.Close() })()
			if config == nil {
				s.serveHTTP1(conn)
				return
			}
			secure := tls.Server(conn, config)
			defer secure.Close()
			s.serveHTTP2(secure)
		})
	}
}

// drain makes the count final: for a moment it takes whatever connection still
// comes, and then it waits until each has ended, with all that was sent on it
// read. end has the client close those that are idle, which one of HTTP/2 is
// not at once.
func (s *wireServer) drain(ctx context.Context, end func()) error {
	if err := s.listener.SetDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		s.running.Wait()
		close(ended)
	}()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		end()
		select {
		case <-ended:
			return context.Cause(ctx) // which would have ended them too
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-again.C:
		}
	}
}

func (s *wireServer) close() {
	s.cancel()
	s.listener.Close()
	s.running.Wait()
}

// serveHTTP1 ends the connection after any request but one to warmPath.
func (s *wireServer) serveHTTP1(conn net.Conn) {
	in := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		if req.URL.Path != warmPath {
			s.whole.Add(1)
			return
		}
		if s.warming.Add(-1) == 0 {
			close(s.warm)
		}
		select {
		case <-s.warm:
		case <-s.ctx.Done():
			return
		}
		if _, err := io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n"); err != nil {
			return
		}
	}
}

// What of HTTP/2 such a server has to know (RFC 9113).
const (
	http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

	frameHeaderLen = 9
	frameData      = 0
	frameHeaders   = 1
	frameReset     = 3
	frameSettings  = 4
	frameGoAway    = 7

	flagAck       = 1 // of SETTINGS
	flagEndStream = 1 // of DATA and HEADERS

	codeProtocolError = 1
	codeRefusedStream = 7
)

// serveHTTP2 answers each request with the frame of its case, and reads on.
func (s *wireServer) serveHTTP2(conn *tls.Conn) {
	in := bufio.NewReader(conn)
	if _, err := io.CopyN(io.Discard, in, int64(len(http2Preface))); err != nil {
		return
	}
	if _, err := conn.Write(frame(frameSettings, 0, 0)); err != nil {
		return
	}
	for {
		header := make([]byte, frameHeaderLen)
		if _, err := io.ReadFull(in, header); err != nil {
			return
		}
		length := int64(header[0])<<16 | int64(header[1])<<8 | int64(header[2])
		if _, err := io.CopyN(io.Discard, in, length); err != nil {
			return
		}
		kind, flags, stream := header[3], header[4], binary.BigEndian.Uint32(header[5:])
		var out []byte
		switch {
		case kind == frameSettings && flags&flagAck == 0:
			out = frame(frameSettings, flagAck, 0)
		case (kind == frameData || kind == frameHeaders) && flags&flagEndStream != 0:
			s.whole.Add(1)
			out = s.answer(stream)
		}
		// A client that takes no answer may still have sent more: all of it counts.
		_, _ = conn.Write(out)
		if len(out) > 0 && out[3] == frameGoAway {
			// Where the request has been given up meanwhile, net/http takes the connection
			// out of its pool and keeps it open: without an IdleConnTimeout it ends only
			// when the server ends it, as one that has said GOAWAY is to.
			_ = conn.CloseWrite()
		}
	}
}

// frame returns an HTTP/2 frame whose payload is 32-bit numbers.
func frame(kind, flags byte, stream uint32, payload ...uint32) []byte {
	f := binary.BigEndian.AppendUint32([]byte{0, 0, byte(4 * len(payload)), kind, flags}, stream)
	for _, n := range payload {
		f = binary.BigEndian.AppendUint32(f, n)
	}
	return f
}

func protocolError(stream uint32) []byte { return frame(frameReset, 0, stream, codeProtocolError) }
func refusedStream(stream uint32) []byte { return frame(frameReset, 0, stream, codeRefusedStream) }

// goAway says that no stream was processed, and names no error.
func goAway(uint32) []byte { return frame(frameGoAway, 0, 0, 0, 0) }

// selfSigned makes a certificate for 127.0.0.1.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}
