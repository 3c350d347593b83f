package fednats

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Parts are what of a fleet a program takes part in. What it leaves out is neither
// created nor asked for, so that it needs no permission for it.
type Parts uint8

// The parts. Zero in [Config] is all of them.
const (
	PartPolicies    Parts = 1 << iota // Feed and the writers of policies
	PartDenials                       // Denials
	PartDegraded                      // Degrade, SetDegraded
	PartAnchors                       // Anchors
	PartUnresolved                    // Coordinator
	PartEscalations                   // Escalator, Escalations

	allParts = PartPolicies | PartDenials | PartDegraded | PartAnchors | PartUnresolved | PartEscalations
)

// Config is how a program takes part in a fleet.
type Config struct {
	// Conn is a connection of the program's own, which Close leaves open. It should
	// reconnect for ever (nats.MaxReconnects(-1)). Either Conn or URL is required.
	Conn *nats.Conn
	// URL is where a connection is made to, several separated by commas; Close
	// closes it. Options are for it alone: credentials, TLS and all else that
	// nats.go knows. They come after, and so before, those of this package.
	URL     string
	Options []nats.Option

	// Prefix begins the names of buckets, streams and subjects: letters, digits,
	// "-" and "_", at most 32. "": "fedhttp". Fleets that share an account need
	// one each.
	Prefix string
	// Replicas is how many servers keep each bucket and stream that this program
	// creates, 1, 3 or 5. Zero: 1. What is there already stays as it is.
	Replicas int
	// MaxBytes bounds each bucket and stream that this program creates, in bytes.
	// Zero: no bound but the account's. Negative is a fault. What finds them full
	// stays in the spool.
	MaxBytes int64
	// Parts are those taken part in. Zero: all.
	Parts Parts

	// Name tells this replica from the others, in escalations and leases: at most 256
	// bytes. "": the host's name and the process id.
	Name string
	// Dir keeps what waits to be published on disk, where it survives the process.
	// It belongs to one process at a time and is created where it is missing. "":
	// in memory.
	Dir string
	// SpoolMax is how many denials, unresolved policies and escalations, of each,
	// may wait to be published, at most 1,000,000. Zero: 10,000. Negative is a
	// fault. What finds it full is lost, logged and counted.
	SpoolMax int
	// MaxStaleness is how old what the book knows may become before the book is
	// stale, see fedhttp.PolicyBook.SetStale. Zero: 1 min. At least 1 s. Negative:
	// it never is.
	MaxStaleness time.Duration
	// Offline lets Open succeed with the cluster out of reach: the parts are set up
	// once it is there. Without it Open fails when its context ends.
	Offline bool
	// NoSetup keeps Open from creating anything: where a bucket or stream of its parts
	// is missing, it fails. It is for tools, whose fleet is there already: a prefix
	// with a slip in it must not become a fleet of its own.
	NoSetup bool
	// Logger is told of refused values, losses, and the cluster coming and going.
	// Nil: slog.Default().
	Logger *slog.Logger
}

const (
	defaultPrefix       = "fedhttp"
	defaultSpool        = 10_000
	maxSpool            = 1_000_000
	defaultMaxStaleness = time.Minute
)

var prefixForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// urlFault says why a URL does not parse, and nothing of a password. Where one ends that has
// a "/" or "#" in it, cannot be told.
func urlFault(s string, err error) string {
	if fields := (*url.Error)(nil); errors.As(err, &fields) && !strings.Contains(s, "@") {
		return fields.Err.Error()
	}
	return "it does not parse (in a password, special characters are percent-encoded)"
}

// withDefaults returns the whole configuration, or an error that names every fault.
func (c Config) withDefaults() (Config, error) {
	var faults []error
	fault := func(field, format string, args ...any) {
		faults = append(faults, fmt.Errorf("fednats: Config.%s: %s", field, fmt.Sprintf(format, args...)))
	}
	switch {
	case c.Conn == nil && c.URL == "":
		fault("URL", "neither it nor Conn is set; want one of them")
	case c.Conn != nil && c.URL != "":
		fault("URL", "Conn is set too; want one of them")
	case c.Conn != nil && c.Options != nil:
		fault("Options", "they are for URL, and Conn is set")
	}
	for n, server := range strings.Split(c.URL, ",") {
		// Not the URL itself: it may have a password.
		if server = strings.TrimSpace(server); !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		switch u, err := url.Parse(server); {
		case err != nil:
			fault("URL", "the %d. is none: %s", n+1, urlFault(server, err))
		case c.URL == "":
		case u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != "ws" && u.Scheme != "wss":
			fault("URL", "the scheme of the %d. is none of nats, tls, ws and wss", n+1)
		case u.Hostname() == "":
			fault("URL", "the %d. has no host", n+1)
		}
	}
	if c.Prefix == "" {
		c.Prefix = defaultPrefix
	}
	if !prefixForm.MatchString(c.Prefix) {
		fault("Prefix", "%s has to be 1 to 32 letters, digits, \"-\" and \"_\"", quote(c.Prefix))
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.Replicas != 1 && c.Replicas != 3 && c.Replicas != 5 {
		fault("Replicas", "%d is not 1, 3 or 5", c.Replicas)
	}
	if c.MaxBytes < 0 {
		fault("MaxBytes", "%d is negative; want a positive one, or 0 for no bound but the account's", c.MaxBytes)
	}
	if c.Parts == 0 {
		c.Parts = allParts
	}
	if c.Parts&^allParts != 0 {
		fault("Parts", "%#x has unknown parts", uint8(c.Parts))
	}
	if c.SpoolMax == 0 {
		c.SpoolMax = defaultSpool
	}
	if c.SpoolMax < 1 || c.SpoolMax > maxSpool {
		fault("SpoolMax", "%d is not from 1 to %d", c.SpoolMax, maxSpool)
	}
	switch {
	case c.MaxStaleness == 0:
		c.MaxStaleness = defaultMaxStaleness
	case c.MaxStaleness > 0 && c.MaxStaleness < time.Second:
		fault("MaxStaleness", "%v is less than 1s", c.MaxStaleness)
	}
	if c.Name == "" {
		host, _ := os.Hostname()
		c.Name = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	if len(c.Name) > 256 {
		fault("Name", "it is longer than 256 bytes")
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(faults...)
}
