package fedhttp

import (
	"context"
	"fmt"
	"net"
)

// staysHere refuses a connection beyond this machine to an origin that may be plain
// http because it is on it. Where a name such as registry.localhost leads is up to the
// machine's resolver, and a proxy from the environment is used for it as for any other.
// Each request asks it of the connection that it gets: one from the pool may have been
// made for another origin behind the same proxy, or while plain http was allowed.
func staysHere(ctx context.Context, conn net.Conn) error {
	c := callOf(ctx)
	if c == nil || c.peer == nil || c.scheme != "http" || c.peer.AllowPlaintext {
		return nil
	}
	// What is no TCP stays, and a tunnel that the program dials through may not say.
	to, ok := remoteAddr(conn).(*net.TCPAddr)
	if !ok || to.IP.IsLoopback() || to.IP.IsUnspecified() || !c.loopback() {
		return nil
	}
	return fmt.Errorf("%w: %s is plain http and leads beyond this machine, to %s; use https or set AllowPlaintext", ErrPeerUntrusted, c.origin, to)
}

// remoteAddr is nil where the connection has none to tell: net/http never asks for it,
// so that a program's own may not be made for the question.
func remoteAddr(conn net.Conn) (addr net.Addr) {
	defer func() { _ = recover() }()
	return conn.RemoteAddr()
}
