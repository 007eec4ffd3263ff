package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lib/pq"
)

// The calibration loop does the bare steps of the whole loop and nothing else: claim in batches, POST a task of 2.5 kB to a stub in
// a second process, take its "running" and its "success", commit the final ones in groups, write a status when a run is complete.
// No encryption, checks, dependencies or logs: a ceiling for this machine at this moment, not a design.

const (
	calibrateClaim    = 200
	calibrateGroup    = 256
	calibrateInFlight = 256
)

const calibrateSchema = `
DROP TABLE IF EXISTS calibrate_operations, calibrate_runs, calibrate_statuses;
CREATE TABLE calibrate_runs (
  id text PRIMARY KEY, runtime text NOT NULL, finished boolean NOT NULL DEFAULT false, open_operations integer NOT NULL);
CREATE UNIQUE INDEX ON calibrate_runs (runtime) WHERE NOT finished;
CREATE TABLE calibrate_operations (
  id text PRIMARY KEY, run text NOT NULL, component text NOT NULL, state text NOT NULL, attempt integer NOT NULL DEFAULT 0,
  lease timestamptz, priority integer NOT NULL, runnable boolean NOT NULL,
  created timestamptz NOT NULL DEFAULT now(), updated timestamptz NOT NULL DEFAULT now(),
  UNIQUE (run, component)) WITH (fillfactor = 70);
CREATE INDEX ON calibrate_operations (priority, created) WHERE runnable;
CREATE TABLE calibrate_statuses (id bigserial PRIMARY KEY, runtime text, status text, created timestamptz DEFAULT now());`

const calibrateFill = `
WITH runs AS (
  INSERT INTO calibrate_runs (id, runtime, open_operations) SELECT 'r' || c, 'c' || c, $2 FROM generate_series(1, $1::int) c)
INSERT INTO calibrate_operations (id, run, component, state, priority, runnable)
SELECT 'r' || c || '--o' || o, 'r' || c, 'component-' || o, 'new', 2, true FROM generate_series(1, $1::int) c, generate_series(1, $2::int) o`

const calibrateClaimSQL = `
UPDATE calibrate_operations
SET state = 'in_progress', runnable = false, attempt = attempt + 1, lease = clock_timestamp() + interval '30 s', updated = clock_timestamp()
WHERE id = ANY (ARRAY (
  SELECT id FROM calibrate_operations WHERE runnable ORDER BY priority, created LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING id, component`

const calibrateFinishSQL = `
WITH ended AS (
    UPDATE calibrate_operations SET state = 'done', lease = NULL, updated = clock_timestamp()
    WHERE id = ANY ($1) AND attempt = 1 RETURNING run),
  counted AS (SELECT run, count(*) AS n FROM ended GROUP BY run),
  runs AS (
    UPDATE calibrate_runs r SET open_operations = open_operations - n, finished = (open_operations = n)
    FROM counted WHERE r.id = counted.run RETURNING r.runtime, r.finished),
  statuses AS (INSERT INTO calibrate_statuses (runtime, status) SELECT runtime, 'ready' FROM runs WHERE finished RETURNING 1)
SELECT (SELECT count(*) FROM ended)`

// calibration is one turn of the loop.
type calibration struct {
	Operations       int64         `json:"operations"`
	Took             time.Duration `json:"took"`
	CommitsPerOp     float64       `json:"commitsPerOp"`
	OperationsPerSec float64       `json:"operationsPerSec"`
}

type calibrateTask struct {
	CorrelationID string `json:"correlationID"`
	CallbackURL   string `json:"callbackURL"`
	Kubeconfig    string `json:"kubeconfig"`
	Component     string `json:"component"`
}

// calibrateLoop holds what the goroutines of one turn share.
type calibrateLoop struct {
	db       *sql.DB
	client   *http.Client
	fail     context.CancelCauseFunc
	finals   chan calibrateFinal
	complete chan struct{}
	total    int64
	ended    int64 // only the committer's
	commits  atomic.Int64
}

type calibrateFinal struct {
	id   string
	done chan struct{}
}

func calibrateCommand(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("bench calibrate", flag.ContinueOnError)
	dsn := flags.String("dsn", "", "PostgreSQL database to use; the loop drops and makes the tables calibrate_*")
	clusters := flags.Int("clusters", 2000, "runs")
	components := flags.Int("components", 10, "operations in each run")
	asJSON := flags.Bool("json", false, "print the result as JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, err := calibrate(ctx, *dsn, *clusters, *components)
	if err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(stdout).Encode(c)
	}
	_, err = fmt.Fprintf(stdout, "%d operations in %v: %.0f operations/s, %.3f commits per operation\n",
		c.Operations, c.Took.Round(time.Millisecond), c.OperationsPerSec, c.CommitsPerOp)
	return err
}

func calibrate(ctx context.Context, dsn string, clusters, components int) (calibration, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return calibration{}, err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	if _, err := db.ExecContext(ctx, calibrateSchema); err != nil {
		return calibration{}, err
	}
	if _, err := db.ExecContext(ctx, calibrateFill, clusters, components); err != nil {
		return calibration{}, err
	}
	stubURL, stop, err := startCalibrateStub(ctx)
	if err != nil {
		return calibration{}, err
	}
	defer stop()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return calibration{}, err
	}
	l := &calibrateLoop{
		db: db, client: poolClient(calibrateInFlight), fail: fail,
		finals: make(chan calibrateFinal, calibrateGroup), complete: make(chan struct{}), total: int64(clusters * components),
	}
	server := &http.Server{Handler: http.HandlerFunc(l.callback), ReadHeaderTimeout: 30 * time.Second}
	defer func() { // the stub hears the last answers
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
	}()
	go func() {
		if err := server.Serve(listener); ctx.Err() == nil && !errors.Is(err, http.ErrServerClosed) {
			fail(err)
		}
	}()
	go l.commitFinals(ctx) // one committer: two would deadlock on the rows of shared runs unless they locked in order
	start := time.Now()
	if err := l.dispatch(ctx, stubURL, "http://"+listener.Addr().String()+"/callback?id="); err != nil {
		return calibration{}, err
	}
	select {
	case <-l.complete:
	case <-ctx.Done():
		return calibration{}, context.Cause(ctx)
	}
	took := time.Since(start)
	return calibration{
		Operations: l.total, Took: took,
		CommitsPerOp:     float64(l.commits.Load()) / float64(l.total),
		OperationsPerSec: float64(l.total) / took.Seconds(),
	}, nil
}

// dispatch claims batches and posts their tasks until nothing is left to claim and all are posted.
func (l *calibrateLoop) dispatch(ctx context.Context, stubURL, callbackURL string) error {
	kubeconfig := strings.Repeat("k", 2500)
	slots := make(chan struct{}, calibrateInFlight)
	var posts sync.WaitGroup
	for {
		tasks, err := l.claim(ctx)
		if err != nil || len(tasks) == 0 {
			posts.Wait()
			return err
		}
		for _, t := range tasks {
			t.Kubeconfig, t.CallbackURL = kubeconfig, callbackURL+url.QueryEscape(t.CorrelationID)
			slots <- struct{}{}
			posts.Go(func() {
				defer func() { <-slots }()
				if err := postJSON(ctx, l.client, stubURL, t); err != nil {
					l.fail(err)
				}
			})
		}
	}
}

func (l *calibrateLoop) claim(ctx context.Context) (tasks []calibrateTask, err error) {
	rows, err := l.db.QueryContext(ctx, calibrateClaimSQL, calibrateClaim)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var t calibrateTask
		if err := rows.Scan(&t.CorrelationID, &t.Component); err != nil {
			return nil, err
		}
		tasks = append(tasks, t)
	}
	l.commits.Add(1)
	return tasks, rows.Err()
}

// callback takes one message of the stub; a final one is answered after the commit that holds it.
func (l *calibrateLoop) callback(w http.ResponseWriter, r *http.Request) {
	var m message
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if m.Status != "success" {
		return
	}
	final := calibrateFinal{id: r.URL.Query().Get("id"), done: make(chan struct{})}
	select {
	case l.finals <- final:
	case <-r.Context().Done():
		return
	}
	select {
	case <-final.done:
	case <-r.Context().Done():
	}
}

// commitFinals commits together what arrived during the commit before.
func (l *calibrateLoop) commitFinals(ctx context.Context) {
	for {
		var batch []calibrateFinal
		select {
		case final := <-l.finals:
			batch = append(batch, final)
		case <-ctx.Done():
			return
		}
		for more := true; more && len(batch) < calibrateGroup; {
			select {
			case final := <-l.finals:
				batch = append(batch, final)
			default:
				more = false
			}
		}
		ids := make([]string, len(batch))
		for i, final := range batch {
			ids[i] = final.id
		}
		var n int64
		if err := l.db.QueryRowContext(ctx, calibrateFinishSQL, pq.Array(ids)).Scan(&n); err != nil {
			l.fail(err)
			return
		}
		l.commits.Add(1)
		for _, final := range batch {
			close(final.done)
		}
		if l.ended += n; l.ended == l.total {
			close(l.complete)
			return
		}
	}
}

// startCalibrateStub starts the stub as a process of its own, on a listener that this one opens.
func startCalibrateStub(ctx context.Context) (url string, stop func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = listener.Close() }()
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = file.Close() }()
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	child := exec.CommandContext(ctx, self, "calibrate-stub")
	child.ExtraFiles, child.Stderr, child.SysProcAttr = []*os.File{file}, os.Stderr, childAttributes()
	if err := child.Start(); err != nil {
		return "", nil, err
	}
	return "http://" + listener.Addr().String() + "/v1/run", func() { _ = child.Process.Kill(); _ = child.Wait() }, nil
}

// calibrateStub plays the component reconciler: it accepts a task and sends its two callbacks.
func calibrateStub(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	tasks, client := make(chan calibrateTask, 1<<17), poolClient(calibrateInFlight)
	for range calibrateInFlight {
		go func() {
			for t := range tasks {
				for _, status := range []string{"running", "success"} {
					if err := postJSON(ctx, client, t.CallbackURL, message{Status: status, RetryID: "x", ProcessingDuration: 1}); err != nil {
						fail(err)
						return
					}
				}
			}
		}()
	}
	server := &http.Server{ReadHeaderTimeout: 30 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var t calibrateTask
		if err := json.NewDecoder(r.Body).Decode(&t); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		tasks <- t
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	})}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}
	return context.Cause(ctx)
}

// message is a callback as a component reconciler of any team sends it.
type message struct {
	Status             string  `json:"status"`
	Error              string  `json:"error"`
	RetryID            string  `json:"retryID"`
	ProcessingDuration float64 `json:"processingDuration"`
}

func poolClient(connections int) *http.Client {
	return &http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{MaxIdleConns: connections, MaxIdleConnsPerHost: connections, MaxConnsPerHost: connections},
	}
}

func postJSON(ctx context.Context, client *http.Client, target string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", request.URL.Path, response.Status)
	}
	return nil
}
