package fedhttp

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// origin is a scheme, host and port (RFC 6454), normalised: lower case, no
// trailing dot, the port always given. Origins are ASCII: a host with other
// characters is written in punycode, or it matches nothing.
type origin struct {
	scheme, host, port string
}

func (o origin) String() string {
	host := o.host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if o.port == defaultPort(o.scheme) {
		return o.scheme + "://" + host
	}
	return o.scheme + "://" + host + ":" + o.port
}

// loopback reports whether the origin is on this machine by its very name.
// Names that merely resolve to a loopback address are not.
func (o origin) loopback() bool {
	if addr, err := netip.ParseAddr(o.host); err == nil {
		return addr.IsLoopback()
	}
	return o.host == "localhost" || strings.HasSuffix(o.host, ".localhost")
}

func defaultPort(scheme string) string {
	switch scheme {
	case "http":
		return "80"
	case "https":
		return "443"
	}
	return ""
}

var errNoOrigin = errors.New("no scheme and host")

// originOf normalises the origin of u. It ignores userinfo, path and query.
func originOf(u *url.URL) (origin, error) {
	if u == nil {
		return origin{}, errNoOrigin
	}
	if u.Opaque != "" {
		// It is sent in the place of the path, which routes are matched by.
		return origin{}, errors.New("an opaque URL has no path")
	}
	o := origin{scheme: u.Scheme}
	standard := defaultPort(o.scheme)
	if standard == "" {
		return origin{}, fmt.Errorf("scheme %s is not http or https", quote(o.scheme))
	}
	host, port, err := splitHostPort(u.Host)
	if err != nil {
		return origin{}, err
	}
	if o.port = port; port == "" {
		o.port = standard
	}
	o.host, err = normalHost(host)
	return o, err
}

// splitHostPort takes a URL's host apart. Unlike net.SplitHostPort it takes a
// missing port, and it never accepts what net/url lets through unparsed in a
// URL that was built by hand.
func splitHostPort(hostport string) (host, port string, err error) {
	host = hostport
	if strings.HasPrefix(hostport, "[") {
		end := strings.IndexByte(hostport, ']')
		if end < 0 {
			return "", "", fmt.Errorf("host %s lacks its closing bracket", quote(hostport))
		}
		host, port = hostport[1:end], hostport[end+1:]
		if _, err := netip.ParseAddr(host); err != nil || !strings.Contains(host, ":") {
			return "", "", fmt.Errorf("host %s is no IPv6 address", quote(hostport))
		}
	} else if colon := strings.IndexByte(hostport, ':'); colon >= 0 {
		host, port = hostport[:colon], hostport[colon:]
	}
	if port == "" || port == ":" {
		return host, "", nil
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(port, ":"), 10, 16)
	if err != nil || n == 0 || port[0] != ':' {
		return "", "", fmt.Errorf("host %s has no valid port", quote(hostport))
	}
	return host, strconv.FormatUint(n, 10), nil
}

func normalHost(host string) (string, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().String(), nil // net dials "::ffff:192.0.2.1" as the IPv4 address that it is
	}
	host = strings.TrimSuffix(host, ".")
	if host == "" || len(host) > 253 {
		return "", errNoOrigin
	}
	if host[0] == '.' || host[len(host)-1] == '.' || strings.Contains(host, "..") {
		return "", fmt.Errorf("host %s has an empty label", quote(host))
	}
	for i := range len(host) {
		switch c := host[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_':
		default:
			return "", fmt.Errorf("host %s is not ASCII letters, digits, hyphens and dots; write it in punycode", quote(host))
		}
	}
	return strings.ToLower(host), nil
}

// parseOrigin reads an origin from a configuration: a URL without anything
// beyond scheme, host and port.
func parseOrigin(s string) (origin, error) {
	u, err := url.Parse(s)
	if err != nil {
		// url.Parse quotes its whole input, and that may hold a password.
		return origin{}, errors.New("is no URL")
	}
	if !strings.Contains(s, "//") {
		return origin{}, errors.New("has no scheme, such as https://")
	}
	if u.User != nil || u.RawQuery != "" || strings.Contains(s, "#") || u.Opaque != "" || u.ForceQuery || u.Path != "" && u.Path != "/" {
		return origin{}, errors.New("has more than scheme, host and port")
	}
	return originOf(u)
}
