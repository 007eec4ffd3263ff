package store

import (
	"context"
	"fmt"
)

// LimitPages makes a SQLite database full at that many pages, or at what it has if that is more.
func (s *Store) LimitPages(ctx context.Context, pages int) error {
	_, err := s.hot.db.ExecContext(ctx, fmt.Sprintf("PRAGMA max_page_count = %d", pages))
	return err
}
