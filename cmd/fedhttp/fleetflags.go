package main

import (
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/spf13/cobra"
)

// fleetAccess is how escalations and policies reach a fleet.
type fleetAccess struct {
	std streams

	urls, creds, caFile, certFile, keyFile, prefix, inbox string
	timeout                                               time.Duration
}

// fleetSettings are the flags that name a fleet, each with the variable that stands
// in where it is not given.
var fleetSettings = []struct {
	flag, variable, usage string
	at                    func(*fleetAccess) *string
}{
	{"nats", "FEDHTTP_NATS", "the `URL` of the fleet's servers, several separated by commas", func(a *fleetAccess) *string { return &a.urls }},
	{"creds", "FEDHTTP_NATS_CREDS", "credentials `file` of our role (JWT and seed)", func(a *fleetAccess) *string { return &a.creds }},
	{"tls-ca", "FEDHTTP_NATS_TLS_CA", "PEM `file` of the authorities that the servers' certificates come from", func(a *fleetAccess) *string { return &a.caFile }},
	{"tls-cert", "FEDHTTP_NATS_TLS_CERT", "PEM `file` of our certificate", func(a *fleetAccess) *string { return &a.certFile }},
	{"tls-key", "FEDHTTP_NATS_TLS_KEY", "PEM `file` of its key", func(a *fleetAccess) *string { return &a.keyFile }},
	{"prefix", "FEDHTTP_NATS_PREFIX", "what the names of the fleet's buckets and streams begin with, fedhttp where nothing is said", func(a *fleetAccess) *string { return &a.prefix }},
	{"inbox-prefix", "FEDHTTP_NATS_INBOX_PREFIX", "what our role's inboxes begin with, such as _INBOX_operator", func(a *fleetAccess) *string { return &a.inbox }},
}

func (a *fleetAccess) flags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.SortFlags = false
	for _, s := range fleetSettings {
		f.StringVar(s.at(a), s.flag, "", s.usage+" (default $"+s.variable+")")
	}
	f.DurationVar(&a.timeout, "timeout", 10*time.Second, "how long the fleet may take to connect and to answer")
}

// complete takes from the environment what no flag has given, and finds what cannot be
// meant.
func (a *fleetAccess) complete() error {
	for _, s := range fleetSettings {
		if at := s.at(a); *at == "" {
			*at = os.Getenv(s.variable)
		}
	}
	switch {
	case a.urls == "":
		return usage("which fleet? Give --nats URL, or set FEDHTTP_NATS")
	case a.prefix != "" && !fleetPrefix.MatchString(a.prefix):
		return usage("--prefix %s: want 1 to 32 letters, digits, \"-\" and \"_\"", quote(a.prefix))
	case strings.ContainsAny(a.inbox, "*> \t") || strings.HasSuffix(a.inbox, "."):
		return usage("--inbox-prefix %s: want the beginning of a subject, such as _INBOX_operator", quote(a.inbox))
	case a.certFile == "" && a.keyFile != "":
		return usage("--tls-key needs --tls-cert")
	case a.timeout <= 0:
		return usage("--timeout %v: want a time such as 10s", a.timeout)
	}
	return nil
}

var fleetPrefix = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// options are those of the connection. They never retry the first connection: who
// sits at a terminal wants to know at once.
func (a *fleetAccess) options() ([]nats.Option, error) {
	options := []nats.Option{nats.RetryOnFailedConnect(false), nats.Timeout(min(a.timeout, 5*time.Second))}
	if a.creds != "" {
		content, err := readPath(a.creds, maxFile, "name a file of the credentials alone")
		if err == nil {
			_, err = nkeys.ParseDecoratedUserNKey(content)
		}
		if err != nil {
			return nil, fmt.Errorf("--creds: %w", err)
		}
		options = append(options, nats.UserCredentials(a.creds))
	}
	if a.caFile+a.certFile != "" {
		config, err := loadTLS(tlsFlags{"--tls-ca", "--tls-cert", "--tls-key"}, a.caFile, a.certFile, a.keyFile)
		if err != nil {
			return nil, err
		}
		options = append(options, nats.Secure(config))
	}
	if a.inbox != "" {
		options = append(options, nats.CustomInboxPrefix(a.inbox))
	}
	return options, nil
}

// servers are the URLs without what is secret in them: a user's name may be a token.
func (a *fleetAccess) servers() (string, error) {
	var shown []string
	for s := range strings.SplitSeq(a.urls, ",") {
		s = strings.TrimSpace(s)
		if !strings.Contains(s, "://") {
			s = "nats://" + s
		}
		u, err := url.Parse(s)
		// What a password with a "/" or "#" in it would be taken for is refused unseen.
		if err != nil || u.Host == "" || u.RawQuery+u.Fragment != "" || strings.Contains(u.Path, "@") {
			return "", usage("--nats: that is no URL; want one such as tls://nats.example:4222 (in a password, special characters are percent-encoded)")
		}
		switch u.Scheme {
		case "nats", "tls", "ws", "wss":
		default:
			return "", usage("--nats: the scheme %s is none of nats, tls, ws and wss", quote(u.Scheme))
		}
		shown = append(shown, plain(u.Scheme+"://"+u.Host))
	}
	return strings.Join(shown, ","), nil
}
