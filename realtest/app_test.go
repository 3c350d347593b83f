package realtest

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// headerTask tells the requests of one call from those of all others.
const headerTask = "X-Task"

// app is the application behind the servers. It counts what reaches it, and its
// paths end as the situations want: see serve.
type app struct {
	addr, secure string // host:port, plain and with TLS

	mu    sync.Mutex
	tasks map[string]int
}

// newApp starts the application. config is for its port with TLS.
func newApp(t *testing.T, config *tls.Config) *app {
	t.Helper()
	a := &app{tasks: map[string]int{}}
	start := func(secure bool) string {
		server := httptest.NewUnstartedServer(http.HandlerFunc(a.serve))
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		if secure {
			server.TLS = config
			server.StartTLS()
		} else {
			server.Start()
		}
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	a.addr, a.secure = start(false), start(true)
	return a
}

// had returns how many requests of the task have reached the application.
func (a *app) had(task string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tasks[task]
}

func (a *app) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.tasks[r.Header.Get(headerTask)]++
	a.mu.Unlock()
	_, _ = io.Copy(io.Discard, r.Body)
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/app-403-passthrough"):
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"error":"forbidden"}`)
	case strings.HasSuffix(path, "/app-503-passthrough"):
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "5")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error":"db unavailable"}`)
	case strings.HasSuffix(path, "/upstream-timeout"):
		<-r.Context().Done() // until the server in front gives up
	case strings.HasSuffix(path, "/upstream-closed"):
		end(w, "", false)
	case strings.HasSuffix(path, "/upstream-rst"):
		end(w, "", true)
	case strings.HasSuffix(path, "/upstream-garbage"):
		end(w, "\x00\x01 this is no HTTP\r\n\r\n", false)
	case strings.HasSuffix(path, "/upstream-truncated-body"):
		end(w, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nhalf\n", false)
	default:
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "ok\n")
	}
}

// end writes the bytes as they are and ends the connection, with a reset if so
// told.
func end(w http.ResponseWriter, text string, reset bool) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = io.WriteString(conn, text)
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
