package main

import (
	"strings"
	"testing"
	"time"
)

// TestCalledWrongly: how the program was called wrongly is said by flag, with the code for it.
func TestCalledWrongly(t *testing.T) {
	t.Parallel()
	peers := write(t, "peers.yaml", onePeer)
	accept := []string{"policies", "accept", "-nats", "nats://127.0.0.1:1", "-peer", "org-b", "-capability", "c", "-epoch", "1", "-digest"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"proxy", "-peers", peers, "more"}, `"more" is given to no flag, and nothing else is wanted; usage: fedhttp proxy [flags]`},
		{[]string{"proxy", "-peers", peers, "-grace", "-1s"}, "--grace -1s: want a time such as 30s, or 0s"},
		{[]string{"get", "-peers", peers, "-key", "k.pem", "https://registry.b.example/"}, "--key needs --cert"},
		{append(accept, ""), "--digest is empty"},
		{append(accept, "d", "more"), `"more" is given to no flag`},
		{append(accept, "d", "-term", "x"), `--term "x": want key=value, each key once`},
		{[]string{"policies", "revoke", "-nats", "nats://127.0.0.1:1", "-peer", "", "-capability", "c", "-epoch", "1", "-digest", "d"}, "--peer is empty"},
	} {
		runWith(t, "", c.args...).want(t, exitUsage, "fedhttp: "+c.want)
	}
}

// TestFilesByFlag: a file that cannot be read is named with its flag.
func TestFilesByFlag(t *testing.T) {
	t.Parallel()
	peers := write(t, "peers.yaml", onePeer)
	for flag, want := range map[string]string{
		"-policies": "--policies: ", "-anchors": "--anchors: ", "-cacert": "--cacert: ", "-cert": "--cert: ",
		"-d": "--data: ", "-data-binary": "--data-binary: ", "-o": "--output: ",
	} {
		name := "/nowhere/file"
		if strings.HasPrefix(flag, "-d") {
			name = "@" + name
		}
		r := runWith(t, "", "post", "-peers", peers, flag, name, "https://registry.b.example/")
		r.want(t, exitFailed, "fedhttp: "+want, " /nowhere/file: no such file")
	}
}

// TestYAMLWords: what is wrong in the files of policies and anchors is said in the file's
// own words, and not in those of Go.
func TestYAMLWords(t *testing.T) {
	t.Parallel()
	peers := write(t, "peers.yaml", onePeer)
	const keys = "peer, capability, epoch, digest, terms, expires_at"
	for text, want := range map[string]string{
		"x: 1":                                    `line 1: unknown key "x"; want policies`,
		"x":                                       "line 1: `x` does not fit; want a mapping with the list policies",
		"policies: x":                             "line 1: `x` does not fit; want a list of mappings",
		"policies: [x]":                           "line 1: `x` does not fit; want a mapping of " + keys,
		"policies: {a: b}":                        "line 1: a mapping does not fit; want a list of mappings",
		"policies: [{peer: [a]}]":                 "line 1: a list does not fit; want text",
		"policies:\n- {term: {a: b}}":             `line 2: unknown key "term"; want one of ` + keys,
		"policies: [{epoch: -1}]":                 "line 1: `-1` does not fit; want a whole number from 0",
		"policies: [{terms: [a]}]":                "line 1: a list does not fit; want a mapping of text",
		"policies: [{expires_at: tomorrow}]":      `line 1: "tomorrow" is no time; want one such as 2027-01-31T12:00:00Z`,
		"policies: [\n":                           "line 2: did not find expected node content while parsing a flow node; want YAML",
		"policies:\n\t- x":                        "line 2: found character that cannot start any token while scanning for the next token; want YAML",
		"policies: []\n---\npolicies: []":         "a second document; want one in a file",
		"policies:\n- {epoch: x}\n- {digest: {}}": "line 2: `x` does not fit; want a whole number from 0; line 3: a mapping does not fit; want text",
	} {
		path := write(t, "policies.yaml", text)
		r := runWith(t, "", "get", "-peers", peers, "-policies", path, "https://registry.b.example/")
		r.want(t, exitFailed, path+": "+want+"\n")
	}
	path := write(t, "anchors.yaml", "anchors: [{digest: d}]")
	runWith(t, "", "get", "-peers", peers, "-anchors", path, "https://registry.b.example/").
		want(t, exitFailed, path+`: line 1: unknown key "digest"; want one of peer, bundle, url, version, issued_at, expires_at`+"\n")
}

// TestListenNamed: an address that cannot be listened on is named with its flag.
func TestListenNamed(t *testing.T) {
	t.Parallel()
	peers := write(t, "peers.yaml", onePeer)
	for _, address := range []string{"127.0.0.1:99999", "127.0.0.1:x"} {
		runWith(t, "", "proxy", "-peers", peers, "-listen", address).want(t, exitFailed, "fedhttp: --listen: listen tcp: ")
	}
}

// TestRounded: a duration in a trace has three digits.
func TestRounded(t *testing.T) {
	t.Parallel()
	for in, want := range map[time.Duration]string{
		831_777: "832µs", 999_999: "1ms", 1_543_542: "1.54ms", 17: "17ns", 0: "0s", 61_234_567_890: "1m1.2s",
	} {
		if got := rounded(in).String(); got != want {
			t.Errorf("%d: %s, want %s", in, got, want)
		}
	}
}
