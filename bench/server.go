package bench

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
)

// Server is a peer on loopback, in this process: HTTP/1 in the clear ("h1") or
// HTTP/2 over TLS ("h2").
type Server struct {
	*httptest.Server
	Connections atomic.Int64 // that came
	Calls       atomic.Int64 // requests
	Received    atomic.Int64 // bytes of their bodies
}

const answer = `{"id":"task-7","state":"accepted","queue":"default"}`

// Serve starts a Server. It answers with a few bytes, or with as many zeros as the
// query's "bytes" says.
func Serve(proto string) *Server {
	s := &Server{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Calls.Add(1)
		n, _ := io.Copy(io.Discard, r.Body)
		s.Received.Add(n)
		if r.URL.RawQuery == "" {
			_, _ = io.WriteString(w, answer)
			return
		}
		size, _ := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		_, _ = io.Copy(w, &zeros{left: size})
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.Connections.Add(1)
		}
	}
	if proto == "h2" {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	return s
}

// Base returns an http.Transport of its own for the server, which keeps all of its
// connections.
func (s *Server) Base() *http.Transport {
	base := s.Client().Transport.(*http.Transport).Clone()
	base.MaxIdleConns, base.MaxIdleConnsPerHost = 0, 4096
	return base
}

// zeros is a body of zeros.
type zeros struct{ left int64 }

// Read implements io.Reader.
func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.left)
	clear(p[:n])
	z.left -= n
	return int(n), nil
}
