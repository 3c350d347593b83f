package fedconfig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/fedhttp/fedhttp"
)

const (
	// quiet is how long a folder must be still before the file is read: an editor
	// or a tool that has written once is likely to write again.
	quiet = 100 * time.Millisecond
	// restless is how long a folder that is never still can put a reading off.
	restless = time.Second
	// defaultInterval is how often the file is read without an event.
	defaultInterval = 30 * time.Second
)

// WatchOption changes how [Watch] goes about it.
type WatchOption func(*watch)

// WithLogger sets where reloads (info) and what was wrong (error) are logged.
// Nil: slog.Default() at the time, which is also the default.
func WithLogger(logger *slog.Logger) WatchOption { return func(w *watch) { w.logger = logger } }

// WithInterval sets how often the file is read where nothing said that it
// changed. Zero or negative: 30 s.
func WithInterval(d time.Duration) WatchOption {
	return func(w *watch) {
		if w.interval = d; d <= 0 {
			w.interval = defaultInterval
		}
	}
}

// WithBase gives each peer its Base, which no file can name. It is asked
// whenever the peers are set; nil is Config.Base.
func WithBase(base func(fedhttp.Peer) http.RoundTripper) WatchOption {
	return func(w *watch) { w.base = base }
}

// OnReload is called, in Watch's goroutine, after new peers took effect.
func OnReload(f func([]fedhttp.Peer)) WatchOption { return func(w *watch) { w.onReload = f } }

// OnError is called, in Watch's goroutine, with what is logged as an error: an
// *[Error] where the file has faults, else why it cannot be read or watched.
func OnError(f func(error)) WatchOption { return func(w *watch) { w.onError = f } }

// Watch sets t's peers from the file, and again whenever the file changes. It
// blocks until ctx ends, and returns the context's cause, or until a change finds t
// closed, and returns [fedhttp.ErrClosed]. Nothing else ends it.
//
// A file that has faults, is missing or cannot be read changes nothing: t keeps
// the last good peers, or those that it was made with. That is reported once,
// and the next good file takes effect. What SetPeers promises holds for every
// change: all peers or none, and calls that are in flight or held keep the
// configuration that they began with.
//
// The folder that path names the file in is watched, so that editors that rename,
// and the symbolic links that Kubernetes swaps for a ConfigMap, are seen. Where
// path is a link that leads elsewhere, or a folder on its way is one, a change
// behind the link is not. Many events at once are one reading: 100 ms after the
// last, or 1 s after the first. Since a kernel can lose events, and some file
// systems have none, the file is also read every 30 s (see [WithInterval]), which
// finds what the events do not tell; a file with the same content is not applied
// again. One that is empty is read once more after 100 ms, since most writers
// begin so. A writer that takes longer should write another file and rename it.
func Watch(ctx context.Context, path string, t *fedhttp.Transport, opts ...WatchOption) error {
	w := &watch{path: path, transport: t, interval: defaultInterval}
	for _, opt := range opts {
		opt(w)
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		w.unwatched(err) // the interval is left
		return w.run(ctx, nil)
	}
	// The watcher is never kept waiting for us: it may hold its lock while it waits,
	// and look takes that as well.
	wake, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		w.listen(watcher, wake)
	}()
	defer func() {
		watcher.Close()
		<-done
	}()
	w.watcher = watcher
	return w.run(ctx, wake)
}

// watch is one Watch. It belongs to that call's goroutine.
type watch struct {
	path      string
	transport *fedhttp.Transport
	logger    *slog.Logger
	interval  time.Duration
	base      func(fedhttp.Peer) http.RoundTripper
	onReload  func([]fedhttp.Peer)
	onError   func(error)

	watcher  *fsnotify.Watcher // nil: there are no events
	last     []byte            // the content that was looked at last; nil: none
	emptied  bool              // the file was empty when it was read last
	reported string            // the error that was reported last
	deaf     string            // why there are no events, as it was reported last
}

// listen wakes for each event that concerns the file, and for events that were
// lost, until the watcher is closed.
func (w *watch) listen(watcher *fsnotify.Watcher, wake chan<- struct{}) {
	for {
		select {
		case event, open := <-watcher.Events:
			if !open {
				return
			}
			if !w.concerns(event.Name) {
				continue
			}
		case _, open := <-watcher.Errors:
			if !open {
				return
			}
		}
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// concerns reports whether an event at the path can have to do with the file: it
// is the file or its folder, or belongs to the links of a ConfigMap ("..data").
func (w *watch) concerns(path string) bool {
	name := filepath.Base(path)
	return name == filepath.Base(w.path) || strings.HasPrefix(name, "..") || path == filepath.Dir(w.path)
}

func (w *watch) run(ctx context.Context, wake <-chan struct{}) error {
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	still := time.NewTimer(0) // the first reading is now
	defer still.Stop()
	var since time.Time // the first event that no reading has followed
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-wake:
			if since.IsZero() {
				since = time.Now()
			}
			still.Reset(max(0, min(quiet, restless-time.Since(since))))
			continue
		case <-still.C:
			since = time.Time{}
		case <-tick.C:
			if !since.IsZero() { // somebody is writing just now
				continue
			}
		}
		switch err := w.look(); {
		case errors.Is(err, errEmptied):
			still.Reset(quiet)
		case err != nil:
			return err
		}
	}
	return context.Cause(ctx)
}

// errEmptied is that the file has just become empty. Most writers begin so, and it
// should be read once more before that is a fault.
var errEmptied = errors.New("has just become empty")

// look reads the file, and applies it where it is not what it was. Its error is
// errEmptied, or what ends the watch.
func (w *watch) look() error {
	var deaf error
	if w.watcher != nil {
		// Before reading, so that no change falls between. A folder that was
		// replaced needs it again; for others it does nothing.
		if deaf = w.watcher.Add(filepath.Dir(w.path)); deaf == nil {
			w.deaf = ""
		}
	}
	data, err := read(w.path)
	if err != nil {
		w.last = nil // what comes next is news
		w.fail(err)
		return nil
	}
	if deaf != nil {
		w.unwatched(deaf)
	}
	before := w.emptied
	if w.emptied = len(data) == 0; w.emptied && !before {
		return errEmptied
	}
	if w.last != nil && bytes.Equal(data, w.last) {
		return nil
	}
	w.last = data
	peers, err := w.apply(data)
	if errors.Is(err, fedhttp.ErrClosed) {
		return err
	}
	if err != nil {
		w.fail(err)
		return nil
	}
	w.reported = ""
	w.log().Info("fedconfig: the peers of the file are in effect", "file", w.path, "peers", len(peers))
	if w.onReload != nil {
		w.onReload(peers)
	}
	return nil
}

func (w *watch) apply(data []byte) ([]fedhttp.Peer, error) {
	c, err := parse(w.path, data)
	if err != nil {
		return nil, err
	}
	if w.base != nil {
		for i, p := range c.doc.Peers {
			c.doc.Peers[i].Base = w.base(p)
		}
	}
	err = w.transport.SetPeers(c.doc.Peers)
	if errors.Is(err, fedhttp.ErrClosed) {
		return nil, err
	}
	if err != nil {
		// Of what this transport cannot do, such as anchors, parse knows nothing.
		found := faults{file: w.path}
		c.explain(err, &found)
		return nil, found.err()
	}
	return c.doc.Peers, nil
}

// fail reports why the peers are not those of the file.
func (w *watch) fail(err error) { w.report(&w.reported, "fedconfig: the peers stay as they are", err) }

// unwatched reports why changes are found at the interval alone.
func (w *watch) unwatched(err error) {
	w.report(&w.deaf, fmt.Sprintf("fedconfig: the file is not watched, and read every %v alone", w.interval), err)
}

// report reports an error, unless it is the last one that was.
func (w *watch) report(last *string, what string, err error) {
	if *last == err.Error() {
		return
	}
	*last = err.Error()
	w.log().Error(what, "file", w.path, "error", err)
	if w.onError != nil {
		w.onError(err)
	}
}

func (w *watch) log() *slog.Logger {
	if w.logger != nil {
		return w.logger
	}
	return slog.Default()
}
