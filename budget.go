package fedhttp

import (
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// retryBudget bounds a peer's resends by its calls, so that resends cannot
// multiply an outage. Every call adds ratio of a token, every resend takes one;
// reserve tokens are there from the start, and no more than that are saved.
type retryBudget struct {
	spent atomic.Int64 // parts of tokens taken and not yet earned back
}

const (
	budgetReserve = 10
	budgetToken   = 1_000_000_000 // parts
)

// earn writes nothing where nothing is spent, as it is nearly always. It rounds up,
// so that three thirds are one.
func (b *retryBudget) earn(ratio float64) {
	parts := int64(math.Ceil(min(ratio, budgetReserve) * budgetToken))
	for {
		spent := b.spent.Load()
		if spent == 0 || b.spent.CompareAndSwap(spent, max(0, spent-parts)) {
			return
		}
	}
}

func (b *retryBudget) take() bool {
	for {
		spent := b.spent.Load()
		if spent > (budgetReserve-1)*budgetToken {
			return false
		}
		if b.spent.CompareAndSwap(spent, spent+budgetToken) {
			return true
		}
	}
}

// giveBack returns the token of a resend that did not happen.
func (b *retryBudget) giveBack() { b.earn(1) }

// backoff is full-jitter exponential between the policy's bounds, before the
// resend'th resend.
func backoff(p RetryPolicy, resend int) time.Duration {
	ceiling := p.MaxBackoff
	if resend < 62 && p.MinBackoff <= p.MaxBackoff>>resend {
		ceiling = p.MinBackoff << resend
	}
	if span := ceiling - p.MinBackoff; span > 0 {
		return p.MinBackoff + rand.N(span)
	}
	return ceiling
}

// retryAfter reads a response's Retry-After (RFC 9110, section 10.2.3), where
// there is one. It reports false for one that cannot be obeyed: it does not
// parse, is negative, overflows, or is there twice with values that differ.
func retryAfter(h http.Header, now time.Time) (wait time.Duration, present, ok bool) {
	values := h["Retry-After"]
	if len(values) == 0 {
		return 0, false, true
	}
	for _, value := range values[1:] {
		if value != values[0] {
			return 0, true, false
		}
	}
	value := strings.Trim(values[0], " \t")
	if len(value) > 64 {
		return 0, true, false
	}
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil {
		if seconds > math.MaxInt64/uint64(time.Second) {
			return 0, true, false
		}
		return time.Duration(seconds) * time.Second, true, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, true, false
	}
	return max(0, at.Sub(now)), true, true
}
