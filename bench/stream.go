package bench

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
)

// Sampler looks at the memory that is alive, each time that another so many bytes
// have passed.
type Sampler struct {
	Every int64 // 0: never
	Peak  int64

	left int64
}

func (s *Sampler) passed(n int) {
	if s == nil || s.Every == 0 {
		return
	}
	if s.left -= int64(n); s.left <= 0 {
		s.left = s.Every
		runtime.GC() // garbage does not count, and so neither does when it is collected
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		s.Peak = max(s.Peak, int64(m.HeapAlloc+m.StackInuse)) //nolint:gosec // no process has that much
	}
}

// sampled is a reader that tells a Sampler.
type sampledReader struct {
	io.Reader
	sampler *Sampler
}

// Read implements io.Reader.
func (r sampledReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.sampler.passed(n)
	return n, err
}

// Upload sends size bytes in a body that net/http can neither see the end of in
// memory nor send again.
func (s *Sender) Upload(size int64, sampler *Sampler) error {
	req, err := http.NewRequestWithContext(s.ctx, http.MethodPut, s.url, sampledReader{&zeros{left: size}, sampler})
	if err != nil {
		return err
	}
	req.ContentLength = size
	_, err = s.stream(req, nil)
	return err
}

// Download reads an answer of size bytes.
func (s *Sender) Download(size int64, sampler *Sampler) error {
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, fmt.Sprintf("%s?bytes=%d", s.url, size), nil)
	if err != nil {
		return err
	}
	n, err := s.stream(req, sampler)
	if err == nil && n != size {
		err = fmt.Errorf("%d of %d bytes", n, size)
	}
	return err
}

func (s *Sender) stream(req *http.Request, sampler *Sampler) (int64, error) {
	resp, err := s.rt.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("status %d", resp.StatusCode)
	}
	return io.Copy(io.Discard, sampledReader{resp.Body, sampler})
}
