package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"time"
)

// fleetReport is what -json prints with -fleet.
type fleetReport struct {
	Replicas int           `json:"replicas"`
	Copies   int           `json:"copies"`
	Alone    fleetFigures  `json:"alone"`
	Fleet    fleetFigures  `json:"fleet"`
	Outage   outageFigures `json:"outage"`
	Seconds  fleetTimes    `json:"seconds"`
}

// reportFleet runs n replicas that are alone and a fleet of n, prints the tables
// or their JSON, and names the figures that are not what the job promises.
func reportFleet(ctx context.Context, n int, asJSON bool, stdout, stderr io.Writer) (missed []string, err error) {
	r := fleetReport{Replicas: n, Copies: fleetCopies(n)}
	p := &progress{w: stderr}
	done := p.begin("replicas alone")
	r.Alone, _, err = runFleet(ctx, n, "", nil, func(string) {})
	done(err)
	if err != nil {
		return nil, fmt.Errorf("replicas alone: %w", err)
	}
	if err := r.runShared(ctx, p); err != nil {
		return nil, fmt.Errorf("a fleet: %w", err)
	}
	if asJSON {
		err = json.NewEncoder(stdout).Encode(r)
	} else {
		err = r.print(stdout)
	}
	return r.missed(), err
}

// runShared runs the fleet on a folder that is removed afterwards.
func (r *fleetReport) runShared(ctx context.Context, p *progress) (err error) {
	dir, err := os.MkdirTemp("", "fedhttp-fleet-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	done := func(error) {}
	var x outage
	r.Fleet, r.Seconds, err = runFleet(ctx, r.Replicas, dir, &x, func(step string) {
		done(nil)
		done = p.begin("fleet, " + step)
	})
	done(err)
	x.keep(r.Fleet.escalations)
	r.Outage = x.f
	return err
}

// missed names the figures that are not what the job promises.
func (r *fleetReport) missed() []string {
	n, tasks := r.Replicas, r.Replicas*fleetTasks
	alone := fleetFigures{
		Denials: n, Refused: tasks - (n - 1), AnchorFetches: n, Recovered: tasks, Negotiations: n, Released: tasks,
		DeniedAnew: n, RefusedAnew: tasks - n, NegotiatedAnew: n, RanAnew: tasks,
	}
	fleet := fleetFigures{
		Denials: 1, Refused: tasks, AnchorFetches: 1, Recovered: tasks, Negotiations: 1, Released: tasks,
		RefusedAnew: tasks, RanAnew: tasks, ServersStarted: 2*n + 1,
	}
	outage := outageFigures{
		RightPolicy: n * outageAgreed, Pending: n * outageUnagreed, Spooled: outageScopes + outageUnsigned,
		UnsignedAnswers: n * outageUnsigned, Escalations: n * outageUnsigned, EscalatedOnce: n * outageUnsigned,
		EscalationsKept: n * outageUnsigned, Denials: n * outageScopes, RefusedAgain: n * (n - 1) * outageScopes,
	}
	if n == 1 { // its server stays
		fleet.ServersStarted, outage.Spooled = 2, 0
	}
	// A task that is looked at just as its policy is agreed may have it asked for again.
	alone.Negotiations, alone.NegotiatedAnew = max(r.Alone.Negotiations, n), max(r.Alone.NegotiatedAnew, n)
	// Of each replica one task at least, and those that were on their way then.
	alone.Dropped = min(max(r.Alone.Dropped, n), n*fleetCalls)
	fleet.Dropped = min(max(r.Fleet.Dropped, n), n*fleetCalls)
	return missedOf(slices.Concat(compared("alone", r.Alone, alone), compared("fleet", r.Fleet, fleet), compared("outage", r.Outage, outage)))
}

// compared is a promise for each figure of got: it is that of want.
func compared(name string, got, want any) (promises []promise) {
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		if tag := g.Type().Field(i).Tag.Get("json"); tag != "" {
			n, promised := g.Field(i).Int(), w.Field(i).Int()
			promises = append(promises, promise{n == promised, name + "." + tag, n, fmt.Sprint(promised)})
		}
	}
	return promises
}

func (r *fleetReport) print(w io.Writer) error {
	out := &printer{w: w}
	a, f, o := r.Alone, r.Fleet, r.Outage
	out.printf("A FLEET  %d of A's replicas, each with a NATS server of its own, all of them with the same work:\n", r.Replicas)
	out.printf("         %d tasks each in every step. Copies of what the fleet stores: %d.\n\n", fleetTasks, r.Copies)
	out.compare("each alone", "a fleet", []row{
		{"denials of one scope", a.Denials, f.Denials, "B's policy ledger"},
		{"  tasks refused locally, not sent", a.Refused, f.Refused, "A"},
		{"tasks dropped after a rotation", a.Dropped, f.Dropped, "B's routing layer"},
		{"  anchor fetches", a.AnchorFetches, f.AnchorFetches, "B's anchor endpoint"},
		{"  tasks run under the new anchor", a.Recovered, f.Recovered, "B's policy engine"},
		{"negotiations of one policy", a.Negotiations, f.Negotiations, "C's request log"},
		{"  held tasks that ran under it", a.Released, f.Released, "B's policy engine"},
		{"everything restarted: denials anew", a.DeniedAnew, f.DeniedAnew, "B's policy ledger"},
		{"  negotiations anew", a.NegotiatedAnew, f.NegotiatedAnew, "C's request log"},
		{"  tasks under the policy", a.RanAnew, f.RanAnew, "B's policy engine"},
	})
	out.printf("\n%s\n\n", wrapped(r.timesNote(), 0))
	rows := []row{
		{"tasks run under the agreed policy", o.RightPolicy, "", "B's policy engine"},
		{"  under another, in all of the run", f.WrongPolicy, "", "B's policy engine"},
		{"  sent without an agreement, likewise", f.SentUnagreed, "", "B's request log"},
		{"  pending: not sent, no agreement", o.Pending, "", "A"},
		{"answers that tell nothing", o.UnsignedAnswers, "", "B's request log"},
		{"  their escalations: on record", o.Escalations, "", "the fleet"},
		{"  once each", o.EscalatedOnce, "", "the fleet"},
		{"  after the restart of everything", o.EscalationsKept, "", "the fleet"},
		{"denials, each of another scope", o.Denials, "", "B's policy ledger"},
		{"  met again by another replica", o.DeniedAgain, "", "B's policy ledger"},
		{"  refused by another, not sent", o.RefusedAgain, "", "A"},
		{"writes lost", o.Lost, "", "A"},
	}
	if r.Replicas > 1 {
		out.printf("A SERVER IS KILLED  %s\n\n", wrapped(fmt.Sprintf(
			"that of replica %d, for %v. The replica goes on from memory, and %d of its writes wait. With its server back, the "+
				"last write of the fleet has arrived after %v, and all replicas know all of it after %v.",
			r.Replicas, r.Seconds.ServerAway, o.Spooled, r.Seconds.WritesArrived, r.Seconds.AllKnown), 20))
	} else {
		out.printf("ONE SERVER  in the process of the replica, which cannot do without.\n\n")
	}
	out.single(rows)
	return out.err
}

// timesNote says how long a fleet took.
func (r *fleetReport) timesNote() string {
	return fmt.Sprintf("In the fleet all replicas knew of the denial %v after its answer, and the last of %d held tasks reached B %v after "+
		"the acceptance was written. The restart of everything took %v.",
		r.Seconds.DenialKnown, r.Fleet.Released, r.Seconds.LastReleased, r.Seconds.Restart)
}

// elapsed is a time as people read it, and seconds in JSON.
type elapsed time.Duration

func (e elapsed) String() string {
	d := time.Duration(e)
	if d < time.Second {
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// MarshalJSON returns the time in seconds.
func (e elapsed) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(e).Seconds()) }
