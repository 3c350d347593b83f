package fednats

import (
	"context"
	"encoding/json"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fedhttp/fedhttp"
)

// Unresolved returns the policies that tasks have waited for within the last week,
// the oldest first; some may have been agreed since. What cannot be read is left out,
// logged and counted.
func (f *Fleet) Unresolved(ctx context.Context) ([]fedhttp.Unresolved, error) {
	var all []fedhttp.Unresolved
	err := f.readUnresolved(ctx, false, func(u fedhttp.Unresolved) { all = append(all, u) })
	return all, err
}

// FollowUnresolved calls tell with the policies that tasks wait for, those of the
// last week and all that come, until ctx ends; then it returns its cause. One that
// is still unresolved is told again, after ten minutes at the earliest. It is for
// negotiators: each that follows is told of all.
func (f *Fleet) FollowUnresolved(ctx context.Context, tell func(fedhttp.Unresolved)) error {
	return f.readUnresolved(ctx, true, tell)
}

func (f *Fleet) readUnresolved(ctx context.Context, follow bool, tell func(fedhttp.Unresolved)) error {
	if err := f.needs(PartUnresolved, "PartUnresolved"); err != nil {
		return err
	}
	return f.read(ctx, f.names.unresolved(), follow, func(msg jetstream.Msg, _ *jetstream.MsgMetadata) {
		var u fedhttp.Unresolved
		if err := json.Unmarshal(msg.Data(), &u); err != nil {
			f.refusals.add(f.names.unresolved(), msg.Subject(), err)
			return
		}
		tell(u)
	})
}
