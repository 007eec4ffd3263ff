package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// update builds an UPDATE of rows by key: the first key columns of the parameters find the row, the others are set. Never
// is a state in the predicate: with stale statistics PostgreSQL would take a partial index for it.
func (d dialect) update(table string, columns []column, keys int, where string) string {
	var b strings.Builder
	b.WriteString("UPDATE " + table + " AS o SET ")
	for i, c := range columns[keys:] {
		if i > 0 {
			b.WriteString(", ")
		}
		value := "v." + c.name
		if c.name == "reason" { // NULL leaves it.
			value = "COALESCE(v.reason, o.reason)"
		}
		b.WriteString(c.name + " = " + value)
	}
	b.WriteString(" FROM " + d.table(columns) + " WHERE " + where)
	return b.String()
}

// change is rows to be written to one table.
type change struct {
	what, table string
	columns     []column
	keys        int // so many first columns find the row by where; 0: rows are inserted
	where       string
	rows        [][]any
}

func (d dialect) write(c change) string {
	if c.keys == 0 {
		return d.insert(c.table, c.columns, "")
	}
	return d.update(c.table, c.columns, c.keys, c.where)
}

// errRows says that a write hit another number of rows than it must.
var errRows = errors.New("unexpected number of rows")

func (c *change) check(n int64) error {
	if int(n) != len(c.rows) { // Under the lock this can't be.
		return fmt.Errorf("write %s: %w: %d of %d", c.what, errRows, n, len(c.rows))
	}
	return nil
}

// writeAll writes changes of different rows, on PostgreSQL all by one statement.
func (t *tx) writeAll(ctx context.Context, changes []change) error {
	changes = slices.DeleteFunc(changes, func(c change) bool { return len(c.rows) == 0 })
	if t.s.d.postgres && len(changes) > 1 {
		return t.writeAtOnce(ctx, changes)
	}
	for _, c := range changes {
		n, err := t.exec(ctx, t.s.d.write(c), t.s.d.values(c.columns, c.rows)...)
		if err == nil {
			err = c.check(n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) writeAtOnce(ctx context.Context, changes []change) error {
	parts, counts := make([]string, len(changes)), make([]string, len(changes))
	var args []any
	for i, c := range changes {
		parts[i] = fmt.Sprintf("w%d AS (%s RETURNING 1)", i, t.s.d.write(c))
		counts[i] = fmt.Sprintf("(SELECT count(*) FROM w%d)", i)
		args = append(args, t.s.d.values(c.columns, c.rows)...)
	}
	r := newRow(len(changes))
	return t.query(ctx, func(rows *sqlx.Rows) error {
		if err := r.scan(rows); err != nil {
			return err
		}
		for _, c := range changes {
			if err := c.check(r.int64()); err != nil {
				return err
			}
		}
		return r.err
	}, "WITH "+strings.Join(parts, ", ")+" SELECT "+strings.Join(counts, ", "), args...)
}

func operationChange(rows [][]any) change {
	return change{what: "operations", table: "operations", rows: rows, keys: 2, where: "o.correlation_id = v.id AND o.attempt = v.was", columns: []column{
		{"id", kindText},
		{"was", kindInt},
		{"state", kindText},
		{"attempt", kindInt},
		{"tries", kindInt},
		{"retries", kindInt},
		{"fence", kindInt},
		{"runnable", kindBool},
		{"not_before", kindTime},
		{"leased", kindBool},
		{"lease_until", kindTime},
		{"lease_ms", kindInt},
		{"queued_until", kindTime},
		{"deadline", kindTime},
		{"accepted", kindBool},
		{"called_back", kindBool},
		{"runner_id", kindText},
		{"retry_id", kindText},
		{"failed_retries", kindInt},
		{"failed_retry_id", kindText},
		{"reason", kindText},
		{"picked_up", kindTime},
		{"processing_ms", kindInt},
		{"updated_at", kindTime},
	}}
}

// gateChange is what settle changes of operations that no event was about.
func gateChange(rows [][]any) change {
	return change{what: "gates of operations", table: "operations", rows: rows, keys: 2, where: "o.correlation_id = v.id AND o.attempt = v.was", columns: []column{
		{"id", kindText},
		{"was", kindInt},
		{"state", kindText},
		{"runnable", kindBool},
		{"not_before", kindTime},
		{"queued_until", kindTime},
		{"reason", kindText},
		{"updated_at", kindTime},
	}}
}

func reportChange(rows [][]any) change {
	return change{what: "reports of operations", table: "operations", rows: rows, keys: 1, where: "o.correlation_id = v.id", columns: []column{{"id", kindText}, {"report", kindText}}}
}

func runChange(rows [][]any) change {
	return change{what: "runs", table: "reconciliations", rows: rows, keys: 1, where: "o.scheduling_id = v.id", columns: []column{
		{"id", kindText}, {"status", kindText}, {"superseded", kindBool}, {"failed", kindBool}, {"finished", kindBool}, {"updated_at", kindTime},
	}}
}

func clusterChange(rows [][]any) change {
	return change{what: "clusters", table: "clusters", rows: rows, keys: 1, where: "o.runtime_id = v.id", columns: []column{
		{"id", kindText},
		{"cluster_version", kindInt},
		{"config_version", kindInt},
		{"ready_version", kindInt},
		{"status", kindText},
		{"deletion", kindBool},
		{"disabled", kindBool},
		{"disabled_until", kindTime},
		{"open_run", kindText},
		{"failed_run", kindText},
		{"closing", kindBool},
		{"at_once", kindBool},
		{"in_flight", kindInt},
		{"fence", kindInt},
		{"retries", kindInt},
		{"rank", kindInt},
		{"input_at", kindTime},
		{"next_run_at", kindTime},
		{"updated_at", kindTime},
	}}
}

func statusChange(rows [][]any) change {
	return change{what: "statuses", table: "cluster_statuses", rows: rows, columns: []column{
		{"runtime_id", kindText}, {"cluster_version", kindInt}, {"config_version", kindInt}, {"status", kindText}, {"created_at", kindTime},
	}}
}

// insert builds an INSERT of rows; conflict says what to do with those that are there already.
func (d dialect) insert(table string, columns []column, conflict string) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	list := strings.Join(names, ", ")
	// WHERE true tells SQLite's grammar that ON CONFLICT doesn't belong to the SELECT.
	return "INSERT INTO " + table + " (" + list + ") SELECT " + list + " FROM " + d.table(columns) + " WHERE true " + conflict
}

func (t *tx) insertRows(ctx context.Context, table string, columns []column, conflict string, rows [][]any) (int64, error) {
	return t.exec(ctx, t.s.d.insert(table, columns, conflict), t.s.d.values(columns, rows)...)
}

// clean makes a text that both databases take: valid UTF-8 without NUL, of bounded length.
func (s *Store) clean(text string) string {
	if strings.IndexByte(text, 0) >= 0 {
		text = strings.ReplaceAll(text, "\x00", "")
	}
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	if len(text) > s.cfg.MaxText {
		text = strings.ToValidUTF8(text[:s.cfg.MaxText], "") + "…"
	}
	return text
}

// Bounds of what is kept of a report.
const (
	maxLogs      = 50
	maxLine      = 1 << 10
	maxResources = 500
)

// report makes one bounded JSON text of what a component reconciler told beside a status.
func (s *Store) report(r mothership.Report) string {
	lines := func(in []string) []string {
		out := make([]string, 0, min(len(in), maxLogs))
		for _, line := range in[max(0, len(in)-maxLogs):] {
			if line = s.clean(line); len(line) > maxLine {
				line = strings.ToValidUTF8(line[:maxLine], "") + "…"
			}
			out = append(out, line)
		}
		return out
	}
	r.Logs, r.Warnings = lines(r.Logs), lines(r.Warnings)
	r.Resources = append([]mothership.Resource(nil), r.Resources[:min(len(r.Resources), maxResources)]...)
	for i := range r.Resources {
		x := &r.Resources[i]
		for _, text := range []*string{&x.APIVersion, &x.Kind, &x.Namespace, &x.Name, &x.Action, &x.State, &x.Message} {
			*text = s.clean(*text)
		}
	}
	text, _ := json.Marshal(r) // Texts can always be marshalled.
	return string(text)
}
