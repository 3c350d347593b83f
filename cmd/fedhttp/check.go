package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fedhttp/fedhttp/fedconfig"
)

func newCheck(std streams) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check a file of peers and show what each peer is believed",
		Long: `Reads a file of peers, YAML or JSON, and shows what every peer is believed and how
calls to it are made, with the defaults in place.

Where the file has faults, each is written to stderr as file:line:column, with the
field and what was expected, and the exit code is 1.`,
		Example: "  fedhttp check peers.yaml",
		Args:    one("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			peers, err := fedconfig.Load(args[0])
			if err := reportFaults(err, std.err); err != nil {
				return err
			}
			for i, p := range peers {
				if i > 0 {
					fmt.Fprintln(std.out)
				}
				fmt.Fprintln(std.out, plain(p.ID))
				r := beliefs(p)
				r.write(std.out, "  ")
			}
			return nil
		},
	}
}
