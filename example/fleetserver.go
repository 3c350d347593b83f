package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/fedhttp/fedhttp/fednats"
)

// cluster is the fleet's NATS servers, one for each replica, in the process of the
// replica: this one. A server cannot be killed there, only shut down in good order,
// so that of the last replica is a process of its own.
type cluster struct {
	servers []*natsServer
	started int // how often one was
}

// serverConfig is a server's folder and addresses, which it keeps when it is stopped.
type serverConfig struct {
	Dir, Name, Listen, Cluster string
	Routes                     []string
}

func (c serverConfig) start(ctx context.Context) (*fednats.Server, error) {
	if c.Cluster == "" {
		return fednats.Embedded(ctx, c.Dir)
	}
	return fednats.StartServer(ctx, fednats.ServerConfig{
		Dir: c.Dir, Name: c.Name, Listen: c.Listen, Cluster: c.Cluster, Routes: c.Routes,
	})
}

// natsServer is one of them.
type natsServer struct {
	cfg   serverConfig
	apart bool // in a process of its own

	server  *fednats.Server // nil: it is not here, or not at all
	process *exec.Cmd       // nil: likewise
	hold    io.Closer       // what the process lives by
}

// newCluster starts n servers that keep what they store below dir.
func newCluster(ctx context.Context, n int, dir string) (*cluster, error) {
	c := new(cluster)
	if n == 1 {
		c.servers = []*natsServer{{cfg: serverConfig{Dir: dir, Name: "replica-1"}}}
		return c, c.start(ctx)
	}
	addresses, err := freeAddresses(ctx, 2*n)
	if err != nil {
		return nil, err
	}
	for i := range n {
		s := &natsServer{cfg: serverConfig{
			Dir: filepath.Join(dir, fmt.Sprint(i+1)), Name: fmt.Sprint("replica-", i+1), Cluster: addresses[i], Listen: addresses[n+i],
		}}
		for other, address := range addresses[:n] {
			if other != i {
				s.cfg.Routes = append(s.cfg.Routes, "nats-route://"+address)
			}
		}
		c.servers = append(c.servers, s)
	}
	c.servers[n-1].apart = true
	return c, c.start(ctx)
}

// freeAddresses are some at which nobody listened a moment ago.
func freeAddresses(ctx context.Context, n int) (addresses []string, err error) {
	for range n {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// start starts those that do not run.
func (c *cluster) start(ctx context.Context) error {
	for _, s := range c.servers {
		if s.runs() {
			continue
		}
		if err := s.start(ctx); err != nil {
			c.stop()
			return err
		}
		c.started++
	}
	return nil
}

// stop shuts all down in good order.
func (c *cluster) stop() {
	for _, s := range c.servers {
		s.stop()
	}
}

func (s *natsServer) runs() bool { return s.server != nil || s.process != nil }

func (s *natsServer) start(ctx context.Context) (err error) {
	if s.apart {
		return s.startApart(ctx)
	}
	s.server, err = s.cfg.start(ctx)
	return err
}

func (s *natsServer) stop() {
	if s.server != nil {
		s.server.Close()
		s.server = nil
	}
	if s.process != nil {
		s.hold.Close()
		_ = s.process.Wait() // how it ended changes nothing
		s.process = nil
	}
}

// kill ends the server as a power failure does: it can do nothing about it.
func (s *natsServer) kill() error {
	err := s.process.Process.Kill()
	s.stop()
	return err
}

// reach adds to a fleet's configuration how its server is reached. The connection
// of a server that is here has to be closed.
func (s *natsServer) reach(cfg *fednats.Config) (closeConn func(), err error) {
	if s.apart {
		// Its own and no other: a service would name them all, and not notice.
		cfg.URL, cfg.Options = "nats://"+s.cfg.Listen, []nats.Option{nats.IgnoreDiscoveredServers()}
		return func() {}, nil
	}
	conn, err := s.server.Connect()
	if err != nil {
		return nil, err
	}
	cfg.Conn = conn
	return conn.Close, nil
}

// serverEnv has the configuration of a server that a process is to be.
const serverEnv = "FEDHTTP_EXAMPLE_SERVER"

var serverReady = []byte("ready\n")

func (s *natsServer) startApart(ctx context.Context) error {
	cfg, err := json.Marshal(s.cfg)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	process := exec.CommandContext(ctx, self)
	process.Env = append(os.Environ(), serverEnv+"="+string(cfg))
	var why bytes.Buffer // it says nothing but that
	process.Stderr = &why
	in, err := process.StdinPipe()
	if err != nil {
		return err
	}
	out, err := process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := process.Start(); err != nil {
		return err
	}
	s.process, s.hold = process, in
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil || string(line) != string(serverReady) {
		s.stop()
		return fmt.Errorf("the server of %s has not started: %w", s.cfg.Name, errors.Join(context.Cause(ctx), errors.New(strings.TrimSpace(why.String()))))
	}
	return nil
}

// serveNATS is the process of a server: it runs until the end of in, so that it
// does not outlive who started it.
func serveNATS(config string, in io.Reader, out, stderr io.Writer) int {
	var cfg serverConfig
	err := json.Unmarshal([]byte(config), &cfg)
	if err == nil {
		err = serveUntil(cfg, in, out)
	}
	return exitCode(stderr, nil, err)
}

func serveUntil(cfg serverConfig, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), jobTimeout)
	defer cancel()
	server, err := cfg.start(ctx)
	if err != nil {
		return err
	}
	defer server.Close()
	if _, err := out.Write(serverReady); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}
