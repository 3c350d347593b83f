package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedconfig"
)

// peersVariable names the file of peers where no flag does.
const peersVariable = "FEDHTTP_PEERS"

func peersFlag(c *cobra.Command, path *string) {
	c.Flags().StringVarP(path, "peers", "p", "", "file of peers, YAML or JSON (default $"+peersVariable+")")
}

// completePeer completes the ID of a peer of the file.
func completePeer(path *string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		peers, err := loadPeers(*path, io.Discard)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var ids []cobra.Completion
		for _, p := range peers {
			ids = append(ids, p.ID)
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}

// peersPath is the file of peers: what the flag names, else the variable.
func peersPath(flag string) string { return cmp.Or(flag, os.Getenv(peersVariable)) }

// loadPeers reads the file of peers. Its faults are written one a line, as editors
// read them.
func loadPeers(path string, errors io.Writer) ([]fedhttp.Peer, error) {
	if path = peersPath(path); path == "" {
		return nil, usage("which peers? Give --peers FILE, or set %s", peersVariable)
	}
	peers, err := fedconfig.Load(path)
	return peers, reportFaults(err, errors)
}

// reportFaults writes the faults of a file and returns what is left to say.
func reportFaults(err error, to io.Writer) error {
	var faults *fedconfig.Error
	if err == nil {
		return nil
	}
	if !errors.As(err, &faults) {
		return failed(err)
	}
	for _, f := range faults.Faults {
		fmt.Fprintln(to, f)
	}
	return &exit{code: exitFailed}
}

// find returns the peer with the id, the only one where id is empty.
func find(peers []fedhttp.Peer, id string) (fedhttp.Peer, error) {
	if id == "" && len(peers) == 1 {
		return peers[0], nil
	}
	names := ""
	for _, p := range peers {
		if p.ID == id {
			return p, nil
		}
		if len(names) < maxShown {
			names += " " + plain(p.ID)
		}
	}
	if id == "" {
		return fedhttp.Peer{}, usage("which peer? Give --peer with one of:%s", names)
	}
	return fedhttp.Peer{}, usage("no peer %s in the file; it has:%s", quote(id), names)
}
