package dispatcher

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

const (
	maxBatch = 256
	// reportFor bounds how long a report is repeated while the database is away; after that the leases have told the rest.
	reportFor = 2 * time.Minute
)

// report writes outcomes until there are no more: each write takes what has come up during the last one. As long as the store
// is away the posts wait, since the channel is bounded.
func (d *Dispatcher) report(hard context.Context) {
	for first := range d.outcomes {
		batch := []mothership.PostOutcome{first}
	fill:
		for len(batch) < maxBatch {
			select {
			case outcome, ok := <-d.outcomes:
				if !ok {
					break fill
				}
				batch = append(batch, outcome)
			default:
				break fill
			}
		}
		d.write(hard, batch)
	}
}

func (d *Dispatcher) write(hard context.Context, batch []mothership.PostOutcome) {
	until := time.Now().Add(reportFor)
	for delay := 50 * time.Millisecond; ; delay = min(2*delay, 2*time.Second) {
		err := d.writeOnce(hard, batch)
		if err == nil {
			d.repeats.Forget("report")
			d.reports.Inc()
			return
		}
		d.repeats.Log(zap.WarnLevel, "report", "can't report the outcome of posts", zap.Int("operations", len(batch)), zap.Error(err))
		select {
		case <-hard.Done():
			return
		case <-time.After(delay):
		}
		if time.Now().After(until) {
			d.cfg.Log.Error("gave up reporting the outcome of posts; their leases are going to end", zap.Int("operations", len(batch)), zap.Error(err))
			return
		}
	}
}

func (d *Dispatcher) writeOnce(ctx context.Context, batch []mothership.PostOutcome) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.StoreTimeout)
	defer cancel()
	return d.cfg.Store.PostOutcomes(ctx, batch)
}
