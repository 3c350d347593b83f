package fedhttp

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"testing"
	"time"
)

// fenceAlone is a base with the fence around it and nothing else of a Transport.
// The copy of the request is not the fence's: a Transport needs one for its
// headers.
type fenceAlone struct{ base http.RoundTripper }

func (rt fenceAlone) RoundTrip(req *http.Request) (*http.Response, error) {
	a := &watched{}
	a.trace.GetConn, a.trace.GotConn = a.getConn, a.gotConn
	return rt.base.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), &a.trace)))
}

// watched is what of an attempt the fence needs.
type watched struct {
	fence fence
	trace httptrace.ClientTrace
}

func (a *watched) getConn(string)                     { a.fence.getConn(func() {}) }
func (a *watched) gotConn(info httptrace.GotConnInfo) { a.fence.gotConn(info, func() {}) }

// copying is a base that gets a copy of each request.
type copying struct{ base http.RoundTripper }

func (rt copying) RoundTrip(req *http.Request) (*http.Response, error) {
	return rt.base.RoundTrip(req.WithContext(req.Context()))
}

// BenchmarkFenceAlone is the fence's part of a GET over loopback: the ratio is
// the time that net/http takes with it, where it takes 1 without.
func BenchmarkFenceAlone(b *testing.B) {
	for _, scheme := range []string{"http", "https"} {
		b.Run(scheme, func(b *testing.B) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "ok")
			}))
			if scheme == "https" {
				server.StartTLS()
			} else {
				server.Start()
			}
			b.Cleanup(server.Close)
			plain := server.Client().Transport.(*http.Transport)
			bare, counted := plain.Clone(), ownBase(plain)
			b.Cleanup(bare.CloseIdleConnections)
			b.Cleanup(func() { closeIdle(counted) })
			chains := []http.RoundTripper{copying{bare}, fenceAlone{counted}}
			var took [2][]time.Duration
			for turn := 0; b.Loop(); turn++ {
				for n := range 2 {
					i := (turn + n) % 2
					begin := time.Now()
					req, err := http.NewRequest(http.MethodGet, server.URL, nil)
					if err != nil {
						b.Fatal(err)
					}
					resp, err := chains[i].RoundTrip(req)
					if err != nil {
						b.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					took[i] = append(took[i], time.Since(begin))
				}
			}
			slices.Sort(took[0])
			slices.Sort(took[1])
			middle := len(took[0]) / 2
			b.ReportMetric(float64(took[1][middle])/float64(took[0][middle]), "ratio-of-medians")
		})
	}
}
