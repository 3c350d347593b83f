package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/fedhttp/fedhttp"
)

// writeDecision writes what was decided, a field a line.
func writeDecision(w io.Writer, d fedhttp.Decision) {
	var r rows
	add := func(key, value string) {
		if value != "" {
			r.add(key, value)
		}
	}
	add("outcome", d.Outcome.String())
	add("reason", d.Reason.String())
	add("peer", plain(d.Peer))
	add("capability", plain(d.Capability))
	add("task", plain(d.TaskID))
	for i, e := range d.Evidence {
		add([]string{"evidence", ""}[min(i, 1)], e.String())
	}
	add("delivery", d.Delivery.String())
	add("correlation id", d.CorrelationID)
	add("peer says", d.PolicyReason)
	if d.PolicyDigest != "" {
		add("policy", plain(d.PolicyDigest)+", epoch "+strconv.FormatUint(d.Epoch, 10)+", "+d.Basis.String())
	}
	add("anchor", plain(d.AnchorVersion))
	add("attempts", strconv.Itoa(d.Attempts))
	if d.Refreshes > 0 {
		add("refreshes", strconv.Itoa(d.Refreshes))
	}
	if d.HeldFor > 0 {
		add("held for", d.HeldFor.Round(time.Millisecond).String())
	}
	if !d.RetryAt.IsZero() {
		add("try again at", d.RetryAt.UTC().Format(time.RFC3339))
	}
	if d.Escalated {
		add("operator", "is to be told")
	}
	r.write(w, "* ")
}

// shown are the attributes that a line of the tree has, in their order.
var shown = []string{
	"url.full", "http.response.status_code", "federation.evidence", "federation.verdict", "federation.delivery",
	"federation.outcome", "federation.reason", "federation.anchor.result", "federation.anchor.version", "federation.held_ms",
	"http.request.resend_count", "error.type",
}

// write writes the span on a line and those below it as a tree.
func (n *node) write(w io.Writer, branch, indent string) {
	fmt.Fprintf(w, "* %s%s  %s%s\n", branch, plain(n.Name()), rounded(n.EndTime().Sub(n.StartTime())), n.attributes())
	for i, child := range n.children {
		if i < len(n.children)-1 {
			child.write(w, indent+"├─ ", indent+"│  ")
		} else {
			child.write(w, indent+"└─ ", indent+"   ")
		}
	}
}

// rounded is a duration to three digits.
func rounded(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit)
}

func (n *node) attributes() string {
	var b strings.Builder
	attributes := n.Attributes()
	for _, key := range shown {
		i := slices.IndexFunc(attributes, func(a attribute.KeyValue) bool { return string(a.Key) == key })
		if i < 0 {
			continue
		}
		name := key
		for _, prefix := range []string{"federation.", "http.response.", "http.request."} {
			name = strings.TrimPrefix(name, prefix)
		}
		if key == "url.full" {
			b.WriteString("  " + plain(attributes[i].Value.String()))
			continue
		}
		b.WriteString("  " + name + "=" + plain(attributes[i].Value.String()))
	}
	return b.String()
}
