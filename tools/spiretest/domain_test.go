package spiretest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

const loopback = "127.0.0.1"

// domain is a trust domain: one server, one agent, one workload.
type domain struct {
	name, workload         string
	dir                    string // short: the path of a socket has little more than 100 characters
	serverPort, bundlePort int

	server, agent *process
}

func (d *domain) id() string { return "spiffe://" + d.name }
func (d *domain) trustDomain() spiffeid.TrustDomain {
	return spiffeid.RequireTrustDomainFromString(d.name)
}
func (d *domain) workloadID() spiffeid.ID {
	return spiffeid.RequireFromPath(d.trustDomain(), "/"+d.workload)
}
func (d *domain) serverID() string       { return d.id() + "/spire/server" }
func (d *domain) bundleURL() string      { return fmt.Sprintf("https://%s:%d", loopback, d.bundlePort) }
func (d *domain) adminSocket() string    { return filepath.Join(d.dir, "server.sock") }
func (d *domain) workloadSocket() string { return filepath.Join(d.dir, "agent.sock") }
func (d *domain) workloadAPI() string    { return "unix://" + d.workloadSocket() }

// serverConfig keeps the keys in memory and the rest in a file of SQLite. The
// refresh hint is the shortest that fedspiffe follows.
var serverConfig = template.Must(template.New("server.conf").Parse(`server {
    bind_address = "127.0.0.1"
    bind_port = "{{.ServerPort}}"
    socket_path = "{{.Socket}}"
    trust_domain = "{{.Name}}"
    data_dir = "{{.Data}}"
    log_level = "INFO"
    federation {
        bundle_endpoint {
            address = "127.0.0.1"
            port = {{.BundlePort}}
            refresh_hint = "5s"
            profile "https_spiffe" {}
        }
        federates_with "{{.Other.Name}}" {
            bundle_endpoint_url = "{{.Other.URL}}"
            bundle_endpoint_profile "https_spiffe" {
                endpoint_spiffe_id = "{{.Other.ServerID}}"
            }
        }
    }
}
plugins {
    DataStore "sql" {
        plugin_data {
            database_type = "sqlite3"
            connection_string = "{{.Data}}/datastore.sqlite3"
        }
    }
    NodeAttestor "join_token" {
        plugin_data {}
    }
    KeyManager "memory" {
        plugin_data {}
    }
}
`))

var agentConfig = template.Must(template.New("agent.conf").Parse(`agent {
    server_address = "127.0.0.1"
    server_port = {{.ServerPort}}
    socket_path = "{{.Socket}}"
    trust_domain = "{{.Name}}"
    trust_bundle_path = "{{.Bundle}}"
    trust_bundle_format = "spiffe"
    join_token = "{{.Token}}"
    data_dir = "{{.Data}}"
    log_level = "INFO"
}
plugins {
    NodeAttestor "join_token" {
        plugin_data {}
    }
    KeyManager "memory" {
        plugin_data {}
    }
    WorkloadAttestor "unix" {
        plugin_data {}
    }
}
`))

// newDomain makes a trust domain of which nothing runs yet.
func newDomain(t *testing.T, name, workload string, ports []int) *domain {
	t.Helper()
	dir, err := os.MkdirTemp("", "spire")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &domain{name: name, workload: workload, dir: dir, serverPort: ports[0], bundlePort: ports[1]}
}

func (d *domain) startServer(ctx context.Context, t *testing.T, other *domain) {
	t.Helper()
	data := d.folder(t, "server")
	config := d.write(t, "server.conf", render(t, serverConfig, map[string]any{
		"Name": d.name, "Socket": d.adminSocket(), "Data": data,
		"ServerPort": d.serverPort, "BundlePort": d.bundlePort,
		"Other": map[string]string{"Name": other.name, "URL": other.bundleURL(), "ServerID": other.serverID()},
	}))
	d.server = start(t, d.name+" spire-server", program("spire-server"), "run", "-config", config)
	d.server.await(ctx, t, func(ctx context.Context) error {
		_, err := run(ctx, program("spire-server"), "healthcheck", "-socketPath", d.adminSocket())
		return err
	})
}

// trust has the server take the other domain's bundle as it is now, the first one,
// which no endpoint can vouch for, and ask the endpoint from then on.
func (d *domain) trust(ctx context.Context, t *testing.T, other *domain) {
	t.Helper()
	bundle := other.cli(ctx, t, "bundle", "show", "-format", "spiffe")
	path := d.write(t, other.name+".bundle", []byte(bundle))
	d.cli(ctx, t, "bundle", "set", "-format", "spiffe", "-id", other.id(), "-path", path)
	d.cli(ctx, t, "federation", "refresh", "-id", other.id())
}

// startAgent starts the agent with a join token, on a node that is named host.
func (d *domain) startAgent(ctx context.Context, t *testing.T) {
	t.Helper()
	bundle := d.write(t, "bootstrap.bundle", []byte(d.cli(ctx, t, "bundle", "show", "-format", "spiffe")))
	token := field(t, "Token", d.cli(ctx, t, "token", "generate", "-spiffeID", d.id()+"/host"))
	config := d.write(t, "agent.conf", render(t, agentConfig, map[string]any{
		"Name": d.name, "Socket": d.workloadSocket(), "Data": d.folder(t, "agent"),
		"ServerPort": d.serverPort, "Bundle": bundle, "Token": token,
	}))
	d.agent = start(t, d.name+" spire-agent", program("spire-agent"), "run", "-config", config)
	d.agent.await(ctx, t, func(ctx context.Context) error {
		_, err := run(ctx, program("spire-agent"), "healthcheck", "-socketPath", d.workloadSocket())
		return err
	})
}

// cli runs a command of spire-server and returns what it printed.
func (d *domain) cli(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out, err := run(ctx, program("spire-server"), append(args, "-socketPath", d.adminSocket())...)
	if err != nil {
		t.Fatalf("%s: spire-server %s: %v\n%s", d.name, strings.Join(args, " "), err, out)
	}
	return out
}

// show is cli for the log.
func (d *domain) show(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out := d.cli(ctx, t, args...)
	t.Logf("%s $ spire-server %s\n%s", d.name, strings.Join(args, " "), strings.TrimSpace(out))
	return out
}

func (d *domain) folder(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(d.dir, name)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func (d *domain) write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(d.dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func render(t *testing.T, tmpl *template.Template, values any) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := tmpl.Option("missingkey=error").Execute(&b, values); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// run runs a command to its end.
func run(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// field is the value of the first line "name: value" of a command's output.
func field(t *testing.T, name, output string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(name) + `\s*: (\S+)\s*$`).FindStringSubmatch(output)
	if m == nil {
		t.Fatalf("no %q in:\n%s", name, output)
	}
	return m[1]
}

// freePorts returns n ports on loopback that are free just now.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", loopback+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // all are taken until all are chosen
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports
}
