package fednats

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// cluster is three servers on loopback.
type cluster struct {
	t      testing.TB
	dirs   [3]string
	client [3]string // addresses, which survive a restart
	routes [3]string
	nodes  [3]node // nil: it is down
	launch func(context.Context, ServerConfig) (node, error)
}

// node is a server of a cluster. Close ends it, in the way that its kind does.
type node interface{ Close() }

// newCluster is one whose servers are in this process: their end is a shutdown.
func newCluster(t testing.TB, change func(*server.Options)) *cluster {
	t.Helper()
	return startCluster(t, func(ctx context.Context, cfg ServerConfig) (node, error) {
		cfg.Configure = change
		return StartServer(ctx, cfg)
	})
}

func startCluster(t testing.TB, launch func(context.Context, ServerConfig) (node, error)) *cluster {
	t.Helper()
	c := &cluster{t: t, launch: launch}
	for n := range c.nodes {
		c.dirs[n], c.client[n], c.routes[n] = t.TempDir(), freeAddress(t), freeAddress(t)
	}
	for n := range c.nodes {
		c.start(n)
	}
	t.Cleanup(func() {
		for n := range c.nodes {
			c.stop(n)
		}
	})
	return c
}

// nextPort gives no two tests the same, of which one may only be about to listen. It
// begins anywhere, as other processes do.
var nextPort = func() *atomic.Uint32 {
	n := new(atomic.Uint32)
	n.Store(rand.Uint32N(20_000))
	return n
}()

// freeAddress is one that nobody listened at a moment ago, and that no system gives
// to an outgoing connection, or to who asks for port 0, while its server is down.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprint("127.0.0.1:", 10_000+nextPort.Add(1)%20_000)
		l, err := net.Listen("tcp", address)
		if err == nil {
			l.Close()
			return address
		}
	}
	t.Fatal("no free port")
	return ""
}

func (c *cluster) start(n int) {
	c.t.Helper()
	cfg := ServerConfig{Dir: c.dirs[n], Name: fmt.Sprint("node", n), Listen: c.client[n], Cluster: c.routes[n]}
	for other, r := range c.routes {
		if other != n {
			cfg.Routes = append(cfg.Routes, "nats-route://"+r)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	s, err := c.launch(ctx, cfg)
	must(c.t, err)
	c.nodes[n] = s
}

func (c *cluster) stop(n int) {
	if c.nodes[n] != nil {
		c.nodes[n].Close()
		c.nodes[n] = nil
	}
}

func (c *cluster) url(nodes ...int) (url string) {
	for _, n := range nodes {
		url += "nats://" + c.client[n] + ","
	}
	return url[:len(url)-1]
}

// open opens a fleet with three copies of everything. The cluster needs some time
// until it has a leader.
func (c *cluster) open(cfg Config) *Fleet {
	c.t.Helper()
	if cfg.URL == "" {
		cfg.URL = c.url(0, 1, 2)
	}
	cfg.Replicas = 3
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return openWith(ctx, c.t, cfg)
}

// leader is the node that leads a stream.
func (c *cluster) leader(f *Fleet, stream string) int {
	c.t.Helper()
	leader := -1
	eventually(c.t, "the stream has a leader", func() bool {
		s, err := f.js.Stream(context.Background(), stream)
		if err != nil || s.CachedInfo().Cluster == nil {
			return false
		}
		for n := range c.nodes {
			if s.CachedInfo().Cluster.Leader == fmt.Sprint("node", n) {
				leader = n
			}
		}
		return leader >= 0
	})
	return leader
}

// proxy is the network between a client and a server, which can be cut: then bytes
// neither pass nor come to an end.
type proxy struct {
	listener net.Listener
	target   string
	cut      atomic.Bool
	work     sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{listener: l, target: target}
	p.work.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				in.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, in, out)
			p.mu.Unlock()
			p.work.Go(func() { p.pass(in, out) })
			p.work.Go(func() { p.pass(out, in) })
		}
	})
	t.Cleanup(func() {
		p.cut.Store(false)
		l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.work.Wait()
	})
	return p
}

func (p *proxy) pass(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if p.cut.Load() {
			_, _ = io.Copy(io.Discard, from) // into the void, until somebody gives up
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

// quickly notices a network that is cut.
var quickly = []nats.Option{
	nats.PingInterval(500 * time.Millisecond), nats.MaxPingsOutstanding(2), nats.Timeout(time.Second), nats.IgnoreDiscoveredServers(),
}
