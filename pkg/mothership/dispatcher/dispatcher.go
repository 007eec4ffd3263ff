// Package dispatcher hands operations over to component reconcilers: it claims as many as it has free slots, posts each as a
// task, and reports what became of the post.
//
// A slot is taken from the claim until the post was answered. Every component reconciler has a share of the slots that the
// others can't take, so that one that hangs doesn't stop the rest; one that says it is full gets no task until it wants some.
//
// Not done here: no rule of state. What an outcome means for an operation is decided by package mothership.
package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/kyma-incubator/reconciler/pkg/daemon"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// Store is what the dispatcher needs of the store.
type Store interface {
	// Claim marks operations as handed over; two claims never get the same attempt.
	Claim(ctx context.Context, requests []mothership.ClaimRequest) ([]mothership.Assignment, error)
	// PostOutcomes records what became of claimed operations.
	PostOutcomes(ctx context.Context, outcomes []mothership.PostOutcome) error
	// Wakeups receives when an operation may have become claimable.
	Wakeups(topic mothership.Topic) <-chan struct{}
}

// Config is what a dispatcher needs; zero durations and counts take the defaults.
type Config struct {
	Store Store
	// Reconcilers are the component reconcilers: name to URL, with or without /v1/run.
	Reconcilers map[string]string
	// AdvertiseURL is where component reconcilers reach the mothership; callback URLs begin with it.
	AdvertiseURL string
	// Workers is the number of slots, and so of posts at once; 64.
	Workers int
	// MaxRetries is how often a component reconciler tries within one attempt; 5.
	MaxRetries int
	// BusyDelay is how long a full component reconciler that says no Retry-After is left alone; 5 s.
	BusyDelay time.Duration
	// PostTimeout bounds one post; 10 s.
	PostTimeout time.Duration
	// StoreTimeout bounds one call of the store; 10 s.
	StoreTimeout time.Duration
	// Sweep is how often work is looked for without a wake-up; 1 s.
	Sweep time.Duration
	// StopGrace is how long posts and reports may take after the stop; 15 s.
	StopGrace time.Duration
	// Transport replaces the own connections in tests.
	Transport  http.RoundTripper
	Registerer prometheus.Registerer
	Log        *zap.Logger
}

// Dispatcher hands operations over. Run it once.
type Dispatcher struct {
	cfg      Config
	client   *http.Client
	lanes    *lanes
	work     chan job
	done     chan result
	outcomes chan mothership.PostOutcome
	repeats  *daemon.Repeats
	posts    *prometheus.CounterVec
	claims   prometheus.Counter
	reports  prometheus.Counter
}

// job is an assignment on its way to a component reconciler.
type job struct {
	lane       *lane
	assignment mothership.Assignment
}

// result gives a slot back.
type result struct {
	lane       *lane
	class      mothership.OutcomeClass
	retryAfter time.Duration
	retrying   bool
}

// New returns a dispatcher, or an error about its configuration.
func New(cfg Config) (*Dispatcher, error) {
	cfg = withDefaults(cfg)
	if len(cfg.Reconcilers) == 0 {
		return nil, errors.New("no component reconciler is configured")
	}
	urls := map[string]string{}
	for name, text := range cfg.Reconcilers {
		runURL, err := RunURL(text)
		if err != nil {
			return nil, fmt.Errorf("component reconciler %q: %w", name, err)
		}
		urls[name] = runURL
	}
	client := daemon.NewHTTPClient(daemon.ClientConfig{Timeout: cfg.PostTimeout, MaxPerHost: cfg.Workers})
	if cfg.Transport != nil {
		client.Transport = cfg.Transport
	}
	d := &Dispatcher{
		cfg: cfg, client: client, lanes: newLanes(urls, cfg.Workers),
		work: make(chan job, cfg.Workers), done: make(chan result, cfg.Workers), outcomes: make(chan mothership.PostOutcome, 4*cfg.Workers),
		repeats: daemon.NewRepeats(cfg.Log, time.Hour),
		posts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mothership_posts_total", Help: "Posts of tasks to component reconcilers by outcome.",
		}, []string{"reconciler", "outcome"}),
		claims:  prometheus.NewCounter(prometheus.CounterOpts{Name: "mothership_claims_total", Help: "Questions for operations to hand over."}),
		reports: prometheus.NewCounter(prometheus.CounterOpts{Name: "mothership_reports_total", Help: "Groups of outcomes of posts that were written."}),
	}
	if cfg.Registerer != nil {
		occupancy := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "reconciler_worker_pool_occupancy_ratio", Help: "Share of the worker pool that is in use, 0 to 100.",
			ConstLabels: prometheus.Labels{"component": "mothership"},
		}, func() float64 { return 100 * float64(d.lanes.used.Load()) / float64(cfg.Workers) })
		for _, collector := range []prometheus.Collector{d.posts, d.claims, d.reports, occupancy} {
			if err := cfg.Registerer.Register(collector); err != nil {
				return nil, fmt.Errorf("register the dispatcher's metrics: %w", err)
			}
		}
	}
	return d, nil
}

func withDefaults(cfg Config) Config {
	setDefault(&cfg.Workers, 64)
	setDefault(&cfg.MaxRetries, 5)
	setDefault(&cfg.BusyDelay, 5*time.Second)
	setDefault(&cfg.PostTimeout, 10*time.Second)
	setDefault(&cfg.StoreTimeout, 10*time.Second)
	setDefault(&cfg.Sweep, time.Second)
	setDefault(&cfg.StopGrace, 15*time.Second)
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	cfg.AdvertiseURL = strings.TrimRight(cfg.AdvertiseURL, "/")
	return cfg
}

func setDefault[T int | time.Duration](value *T, fallback T) {
	if *value <= 0 {
		*value = fallback
	}
}

// RunURL completes the URL of a component reconciler with /v1/run.
func RunURL(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("want a URL like http://host:8081 or http://host:8081/v1/run")
	}
	if !strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/v1/run") {
		u = u.JoinPath("v1", "run")
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// Run claims and posts until ctx ends. Then it claims nothing more, lets what is being posted end within StopGrace, gives back
// what wasn't posted, reports, and returns nil.
func (d *Dispatcher) Run(ctx context.Context) error {
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(d.cfg.StopGrace, cancel)
		context.AfterFunc(hard, func() { timer.Stop() })
	})()
	defer d.client.CloseIdleConnections()

	var posters, reporter sync.WaitGroup
	for range d.cfg.Workers {
		posters.Go(func() { d.postAll(ctx, hard) })
	}
	reporter.Go(func() { d.report(hard) })
	d.claimAll(ctx, hard)
	close(d.work)
	posters.Wait()
	close(d.outcomes)
	reporter.Wait()
	return nil
}

// claimAll is the loop that owns the lanes: it claims whenever there are free slots and there may be work.
func (d *Dispatcher) claimAll(ctx, hard context.Context) {
	wakeups := d.cfg.Store.Wakeups(mothership.TopicClaimable)
	timer := time.NewTimer(d.cfg.Sweep)
	defer timer.Stop()
	var failures int
	var notBefore time.Time
	nextSweep := time.Now().Add(d.cfg.Sweep)
	for ctx.Err() == nil {
		now := time.Now()
		if !now.Before(nextSweep) {
			d.lanes.wake()
			nextSweep = now.Add(d.cfg.Sweep)
		}
		next := nextSweep
		if now.Before(notBefore) {
			next = notBefore
		} else if requests := d.lanes.requests(now); len(requests) > 0 {
			at := d.lanes.claimAt(requests, now)
			if !at.After(now) {
				if d.claim(hard, requests) {
					failures = 0
				} else {
					notBefore = time.Now().Add(min(5*time.Second, 50*time.Millisecond<<min(failures, 10)))
					failures++
				}
				d.drain()
				continue
			}
			next = at
		}
		if opening := d.lanes.nextOpening(now); !opening.IsZero() && opening.Before(next) {
			next = opening
		}
		timer.Reset(next.Sub(now))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-wakeups:
			d.lanes.wake()
		case r := <-d.done:
			d.lanes.release(r, time.Now(), d.cfg.BusyDelay)
			d.drain()
		}
	}
}

// claim takes work for the free slots and passes it on; it says whether the store could be asked.
func (d *Dispatcher) claim(ctx context.Context, requests []mothership.ClaimRequest) bool {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.StoreTimeout)
	defer cancel()
	d.claims.Inc()
	assignments, err := d.cfg.Store.Claim(ctx, requests)
	if err != nil {
		d.repeats.Log(zap.WarnLevel, "claim", "can't claim operations", zap.Error(err))
		return false
	}
	d.repeats.Forget("claim")
	for lane, claimed := range d.lanes.take(requests, assignments) {
		for _, assignment := range claimed {
			d.work <- job{lane: lane, assignment: assignment}
		}
	}
	return true
}

// drain takes back all slots that are free by now.
func (d *Dispatcher) drain() {
	for {
		select {
		case r := <-d.done:
			d.lanes.release(r, time.Now(), d.cfg.BusyDelay)
		default:
			return
		}
	}
}
