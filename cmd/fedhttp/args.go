package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// singleDash writes "-peers" as "--peers", for those who are used to Go's own
// flags. Only a whole name of a flag is meant so: "-ofile" stays -o with its value.
// A value is left alone, whatever it looks like.
func singleDash(root *cobra.Command, args []string) []string {
	long, short := map[string]bool{"help": false, "version": false}, map[string]bool{} // whether it takes a value
	var collect func(*cobra.Command)
	collect = func(c *cobra.Command) {
		for _, flags := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
			flags.VisitAll(func(f *pflag.Flag) {
				takes := f.NoOptDefVal == ""
				long[f.Name] = takes
				short[f.Shorthand] = takes
			})
		}
		for _, sub := range c.Commands() {
			collect(sub)
		}
	}
	collect(root)
	fixed := make([]string, 0, len(args))
	value := false // the next one is a value
	for i, arg := range args {
		name, _, given := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		dashes := len(arg) - len(strings.TrimLeft(arg, "-"))
		takes, known := long[name]
		switch {
		case value:
			value = false
		case arg == "--":
			return append(fixed, args[i:]...)
		case dashes == 1 && known && len(name) > 1:
			arg = "-" + arg
			value = takes && !given
		case dashes == 2 && known:
			value = takes && !given
		case dashes == 1 && name != "":
			value = takesNext(name, short)
		}
		fixed = append(fixed, arg)
	}
	return fixed
}

// takesNext reports whether the last of some shorthand letters ("-vH") takes the
// next argument as its value.
func takesNext(letters string, short map[string]bool) bool {
	for i := range len(letters) {
		if short[letters[i:i+1]] {
			return i == len(letters)-1
		}
	}
	return false
}

// none wants no argument.
func none(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s is given to no flag, and nothing else is wanted; usage: %s", quote(args[0]), c.UseLine())
	}
	return nil
}

// one wants one argument, which is called name.
func one(name string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usage("want one %s only, and not %s too; usage: %s", name, quote(args[1]), c.UseLine())
		}
		return some(name)(c, args)
	}
}

// some wants an argument at least.
func some(name string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 || args[0] == "" {
			return usage("which %s? Usage: %s", name, c.UseLine())
		}
		return nil
	}
}
