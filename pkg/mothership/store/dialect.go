package store

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// dialect is all in which the two databases differ. Statements are written with ? for parameters.
type dialect struct {
	postgres bool
	now      string // the database's clock
	lock     string // at the end of a SELECT that locks its rows
	skip     string // after lock: skips rows that others have locked
}

func postgresDialect() dialect {
	return dialect{postgres: true, now: "clock_timestamp()", lock: " FOR NO KEY UPDATE", skip: " SKIP LOCKED"}
}

// sqliteDialect needs no row locks: its only writer begins with a lock on the whole database.
func sqliteDialect() dialect {
	return dialect{now: "CAST(unixepoch('subsec') * 1000000 AS integer)"}
}

// in returns a condition that a text column has one of the values of one parameter, made by list.
func (d dialect) in(column string) string {
	if d.postgres {
		return column + " = ANY(?::text[])"
	}
	return column + " IN (SELECT value FROM json_each(?))"
}

func (d dialect) list(values []string) any {
	if d.postgres {
		return array(values)
	}
	text, _ := json.Marshal(values) // Texts can always be marshalled.
	return string(text)
}

// at returns the parameter of a time; a zero one is NULL.
func (d dialect) at(t time.Time) any {
	switch {
	case t.IsZero():
		return nil
	case d.postgres:
		return t.UTC()
	}
	return t.UnixMicro()
}

// plus returns an expression for a time plus a parameter in seconds.
func (d dialect) plus(expression string) string {
	if d.postgres {
		return "(" + expression + " + ?::double precision * interval '1 second')"
	}
	return "(" + expression + " + CAST(? * 1000000 AS integer))"
}

// plusMillis returns an expression for a time plus an expression in milliseconds.
func (d dialect) plusMillis(expression, milliseconds string) string {
	if d.postgres {
		return "(" + expression + " + " + milliseconds + " * interval '1 millisecond')"
	}
	return "(" + expression + " + " + milliseconds + " * 1000)"
}

// kind is the type of a column of a table of parameters.
type kind string

const (
	kindText kind = "text"
	kindInt  kind = "bigint"
	kindBool kind = "boolean"
	kindTime kind = "timestamptz"
)

// column is a column of a table of parameters.
type column struct {
	name string
	kind kind
}

// table returns a FROM item called v with these columns, to be filled by one call of values. The statement's text doesn't
// depend on the number of rows, so it is prepared once.
func (d dialect) table(columns []column) string {
	var b strings.Builder
	if d.postgres {
		b.WriteString("unnest(")
		for i, c := range columns {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "?::%s[]", c.kind)
		}
		b.WriteString(") AS v (")
		for i, c := range columns {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(c.name)
		}
		b.WriteString(")")
		return b.String()
	}
	b.WriteString("(SELECT ")
	for i, c := range columns {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "value ->> %d AS %s", i, c.name)
	}
	b.WriteString(" FROM json_each(?)) AS v")
	return b.String()
}

// values returns the parameters of a table: one array for each column, or one JSON text. Each row has a value for each
// column: string, int, int64, bool, time.Time or nil; a zero time is NULL.
func (d dialect) values(columns []column, rows [][]any) []any {
	if !d.postgres {
		for _, row := range rows {
			for i, v := range row {
				if t, ok := v.(time.Time); ok {
					row[i] = d.at(t)
				}
			}
		}
		text, _ := json.Marshal(rows) // Scalars can always be marshalled.
		return []any{string(text)}
	}
	args := make([]any, len(columns))
	for i := range columns {
		b := make([]byte, 0, 16*len(rows))
		b = append(b, '{')
		for n, row := range rows {
			if n > 0 {
				b = append(b, ',')
			}
			b = element(b, row[i])
		}
		args[i] = string(append(b, '}'))
	}
	return args
}

// element appends one element of a PostgreSQL array.
func element(b []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		return quote(b, v)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case bool:
		return strconv.AppendBool(b, v)
	case time.Time:
		if !v.IsZero() {
			b = append(b, '"')
			b = v.UTC().AppendFormat(b, "2006-01-02 15:04:05.999999Z07:00")
			return append(b, '"')
		}
	}
	return append(b, "NULL"...)
}

func quote(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}

func array(values []string) string {
	b := []byte{'{'}
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = quote(b, v)
	}
	return string(append(b, '}'))
}

// scanTime scans a time of either database; NULL is the zero time.
type scanTime struct{ to *time.Time }

// Scan takes what the drivers return for times: a time, or microseconds since 1970.
func (s scanTime) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*s.to = time.Time{}
	case time.Time:
		*s.to = v.UTC()
	case int64:
		*s.to = time.UnixMicro(v).UTC()
	case float64:
		*s.to = time.UnixMicro(int64(v)).UTC()
	default:
		return fmt.Errorf("scan a time: unexpected %T", v)
	}
	return nil
}

// scanMillis scans a duration that is kept in milliseconds.
type scanMillis struct{ to *time.Duration }

// Scan takes milliseconds.
func (s scanMillis) Scan(v any) error {
	ms, ok := v.(int64)
	if !ok {
		return fmt.Errorf("scan a duration: unexpected %T", v)
	}
	*s.to = time.Duration(ms) * time.Millisecond
	return nil
}

// scanText scans a text that may be NULL.
type scanText struct{ to *string }

// Scan takes a text; NULL is the empty one.
func (s scanText) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*s.to = ""
	case string:
		*s.to = v
	case []byte:
		*s.to = string(v)
	default:
		return fmt.Errorf("scan a text: unexpected %T", v)
	}
	return nil
}
