package fedhttp

import (
	"context"
	"log/slog"
	"time"
)

// CorrelationResolver looks up which layer minted a correlation id. It is asked
// only where nothing else spoke, and its answer is waited for 2 s at most; an
// error, a panic or no answer in time is no evidence. It is safe for concurrent
// use.
type CorrelationResolver interface {
	ResolveLayer(ctx context.Context, peer, correlationID string) (Layer, error)
}

const resolveTimeout = 2 * time.Second

func (c *call) resolve(id string) Layer {
	if c.t.correlation == nil || len(id) > maxCorrelationID {
		return LayerUnknown
	}
	ctx, cancel := context.WithTimeout(detached{c}, resolveTimeout)
	defer cancel()
	resolved := make(chan Layer, 1)
	go func() {
		layer := LayerUnknown
		defer func() {
			if fault := recover(); fault != nil {
				layer = LayerUnknown
				c.t.logAttrs(ctx, slog.LevelError, "fedhttp: the correlation resolver panicked", slog.String("peer", c.peer.ID), slog.String("fault", faultText(fault)))
			}
			resolved <- layer
		}()
		if answer, err := c.t.correlation.ResolveLayer(ctx, c.peer.ID, id); err == nil && (answer == LayerPolicy || answer == LayerRouting) {
			layer = answer
		}
	}()
	select {
	case layer := <-resolved:
		return layer
	case <-ctx.Done():
		return LayerUnknown
	}
}
