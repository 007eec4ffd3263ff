package store

import (
	"errors"

	"github.com/lib/pq"
	"modernc.org/sqlite"
)

// unavailableError is an error of the place where the database is, not of what was asked: it heals without us.
type unavailableError struct{ error }

// Unavailable says that the same request may go through later.
func (unavailableError) Unavailable() bool { return true }

func (e unavailableError) Unwrap() error { return e.error }

// Primary result codes of SQLite (https://www.sqlite.org/rescode.html) for a file that can't be written or read.
const (
	sqliteReadOnly = 8
	sqliteIOError  = 10
	sqliteFull     = 13
	sqliteCantOpen = 14
)

// insufficientResources is PostgreSQL's class of a full disk, memory that is used up, and too many connections.
const insufficientResources = "53"

// placed tells errors of the database's disk and file from others.
func placed(err error) error {
	var file *sqlite.Error
	var server *pq.Error
	switch {
	case errors.Is(err, errGone), errors.As(err, &server) && server.Code.Class() == insufficientResources:
		return unavailableError{err}
	case errors.As(err, &file):
		switch file.Code() & 0xff {
		case sqliteReadOnly, sqliteIOError, sqliteFull, sqliteCantOpen:
			return unavailableError{err}
		}
	}
	return err
}
