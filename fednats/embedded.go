package fednats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// ServerConfig is how a server runs in this process.
type ServerConfig struct {
	// Dir keeps what the server stores. Required. It belongs to one server.
	Dir string
	// Listen is the address at which clients of other processes may connect, such
	// as "127.0.0.1:4222"; port 0 chooses one. "": none may. A server of a cluster
	// needs one.
	Listen string
	// Cluster is the address for the other servers of a cluster, "": there is none.
	// Name and Routes belong to it: Name tells the servers apart, and Routes are
	// where the others are, "nats-route://127.0.0.1:6222".
	Cluster string
	Name    string
	Routes  []string
	// Configure changes what this package has chosen: TLS, accounts, limits. Optional.
	Configure func(*server.Options)
}

// Server is a NATS server in this process, with JetStream on file storage.
type Server struct{ s *server.Server }

// Embedded starts a server for a single machine: it keeps everything in dir, across
// restarts, and listens nowhere. Give Open a connection of it:
//
//	server, err := fednats.Embedded(ctx, dir)
//	conn, err := server.Connect()
//	fleet, err := fednats.Open(ctx, fednats.Config{Conn: conn})
//
// Close the fleet, the connection and the server, in this order.
func Embedded(ctx context.Context, dir string) (*Server, error) {
	return StartServer(ctx, ServerConfig{Dir: dir})
}

// StartServer starts a server and waits until it takes connections, or ctx ends.
// That one of a cluster takes them does not say that the cluster has a leader yet.
func StartServer(ctx context.Context, cfg ServerConfig) (*Server, error) {
	options, err := cfg.options()
	if err != nil {
		return nil, err
	}
	s, err := server.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("fednats: %w", err)
	}
	var log serverLog
	s.SetLogger(&log, false, false)
	started := make(chan struct{})
	go func() {
		defer close(started)
		s.Start()
	}()
	for !s.ReadyForConnections(10 * time.Millisecond) {
		if ctx.Err() == nil && log.fatal.Load() == nil {
			continue
		}
		s.Shutdown()
		<-started
		s.WaitForShutdown()
		if fatal := log.fatal.Load(); fatal != nil {
			return nil, fmt.Errorf("fednats: the server has not started: %s", *fatal)
		}
		return nil, fmt.Errorf("fednats: the server has not started: %w", context.Cause(ctx))
	}
	<-started
	return &Server{s}, nil
}

// serverLog keeps why a server does not start, and nothing else.
type serverLog struct{ fatal atomic.Pointer[string] }

func (l *serverLog) Fatalf(format string, v ...any) {
	why := fmt.Sprintf(format, v...)
	l.fatal.CompareAndSwap(nil, &why)
}
func (*serverLog) Noticef(string, ...any) {}
func (*serverLog) Warnf(string, ...any)   {}
func (*serverLog) Errorf(string, ...any)  {}
func (*serverLog) Debugf(string, ...any)  {}
func (*serverLog) Tracef(string, ...any)  {}

func (c ServerConfig) options() (*server.Options, error) {
	if c.Dir == "" {
		return nil, errors.New("fednats: ServerConfig.Dir is empty")
	}
	o := &server.Options{
		ServerName: c.Name, JetStream: true, StoreDir: c.Dir, NoSigs: true,
		DontListen: c.Listen == "",
		SyncAlways: true, // a single machine has no other that remembers
	}
	var faults []error
	if c.Listen != "" {
		faults = append(faults, setAddress("Listen", c.Listen, &o.Host, &o.Port))
	}
	if c.Cluster != "" {
		o.SyncAlways = false // a majority does
		o.Cluster.Name = "fedhttp"
		// One connection for each route: with several, a server may be told that a
		// reader was made before it hears where to ask it, and a question that it then
		// loses is missed only after 10 s.
		o.Cluster.PoolSize = -1
		faults = append(faults, setAddress("Cluster", c.Cluster, &o.Cluster.Host, &o.Cluster.Port))
		if c.Name == "" {
			faults = append(faults, errors.New("fednats: ServerConfig.Name is empty; a cluster tells its servers apart by it"))
		}
		if c.Listen == "" {
			// It would wait for that for ever, before its first route and when it is closed.
			faults = append(faults, errors.New("fednats: ServerConfig.Listen is empty; a server of a cluster has to listen"))
		}
	} else if c.Routes != nil {
		faults = append(faults, errors.New("fednats: ServerConfig.Routes is set without Cluster"))
	}
	for n, r := range c.Routes {
		u, err := url.Parse(r)
		if err != nil {
			faults = append(faults, fmt.Errorf("fednats: ServerConfig.Routes[%d]: %s", n, urlFault(r, err)))
			continue
		}
		o.Routes = append(o.Routes, u)
	}
	if c.Configure != nil {
		c.Configure(o)
	}
	return o, errors.Join(faults...)
}

// Connect returns a connection in the process, that reconnects for ever.
func (s *Server) Connect(options ...nats.Option) (*nats.Conn, error) {
	return nats.Connect("", append([]nats.Option{nats.InProcessServer(s.s), nats.MaxReconnects(-1)}, options...)...)
}

// URL is where clients of other processes connect; "" where none may.
func (s *Server) URL() string {
	if s.s.Addr() == nil {
		return ""
	}
	return s.s.ClientURL()
}

// ClusterAddr is where the other servers of the cluster connect; "" without one.
func (s *Server) ClusterAddr() string {
	if a := s.s.ClusterAddr(); a != nil {
		return a.String()
	}
	return ""
}

// Close shuts the server down, and waits for that.
func (s *Server) Close() {
	s.s.Shutdown()
	s.s.WaitForShutdown()
}

func setAddress(field, address string, host *string, port *int) error {
	h, p, err := net.SplitHostPort(address)
	if err == nil {
		*port, err = strconv.Atoi(p)
	}
	if err != nil {
		return fmt.Errorf("fednats: ServerConfig.%s: %w", field, err)
	}
	if *port == 0 {
		*port = server.RANDOM_PORT
	}
	*host = h
	return nil
}
