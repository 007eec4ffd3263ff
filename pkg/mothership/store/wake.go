package store

import (
	"context"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"go.uber.org/zap"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// topic is one kind of wake-up.
type topic struct {
	here   chan struct{} // wakes the loop of this process
	others chan struct{} // marks the topic for the other replicas
}

func newTopics() map[mothership.Topic]*topic {
	topics := map[mothership.Topic]*topic{}
	for _, name := range []mothership.Topic{mothership.TopicDue, mothership.TopicClaimable} {
		topics[name] = &topic{here: make(chan struct{}, 1), others: make(chan struct{}, 1)}
	}
	return topics
}

// Wakeups returns a channel of capacity one: a receive means "look now". Loops sweep besides, in case one is lost.
func (s *Store) Wakeups(name mothership.Topic) <-chan struct{} { return s.topics[name].here }

func mark(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wake wakes the loop of this process and marks the topic for the others. It is called after a commit: a notification
// inside of a transaction would hold a lock of the whole database until the commit is on disk.
func (s *Store) wake(name mothership.Topic) {
	mark(s.topics[name].here)
	mark(s.topics[name].others)
}

func (s *Store) wakeAll() {
	for _, t := range s.topics {
		mark(t.here)
	}
}

func channel(name mothership.Topic) string { return "mothership_" + string(name) }

// notify sends what was marked: at most one empty notification of each topic in NotifyEvery.
func (s *Store) notify(ctx context.Context) error {
	due, claimable := s.topics[mothership.TopicDue].others, s.topics[mothership.TopicClaimable].others
	for {
		var name mothership.Topic
		select {
		case <-ctx.Done():
			return nil
		case <-due:
			name = mothership.TopicDue
		case <-claimable:
			name = mothership.TopicClaimable
		}
		err := s.read(ctx, func(*sqlx.Rows) error { return nil }, "SELECT pg_notify(?, '')", channel(name))
		if err != nil && ctx.Err() == nil {
			s.cfg.Log.Debug("A wake-up got lost; sweeps make up for it.", zap.String("topic", string(name)), zap.Error(err))
		}
		pause := time.NewTimer(s.cfg.NotifyEvery / 2) // Two topics take turns.
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil
		case <-pause.C:
		}
	}
}

// listen wakes this process for what others commit. After a reconnect everything is looked at.
func (s *Store) listen(ctx context.Context) error {
	l := pq.NewDialListener(dialer{limit: 3 * time.Minute}, s.cfg.URL, 100*time.Millisecond, 10*time.Second, func(e pq.ListenerEventType, _ error) {
		if e == pq.ListenerEventReconnected || e == pq.ListenerEventConnected {
			s.wakeAll()
		}
	})
	listening := make(chan struct{})
	go func() { // Listen waits for the first connection; Close ends it.
		defer close(listening)
		for name := range s.topics {
			if err := l.Listen(channel(name)); err != nil && ctx.Err() == nil {
				s.cfg.Log.Warn("No wake-ups from other replicas; sweeps make up for it.", zap.String("topic", string(name)), zap.Error(err))
			}
		}
	}()
	pings := time.NewTicker(time.Minute)
	defer pings.Stop()
	defer func() {
		_ = l.Close()
		<-listening
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-l.NotificationChannel():
			if n == nil { // The connection was lost and is back.
				s.wakeAll()
				continue
			}
			for name, t := range s.topics {
				if n.Channel == channel(name) {
					mark(t.here)
				}
			}
		case <-pings.C:
			_ = l.Ping() // It reconnects by itself.
		}
	}
}

// beat says again and again that callbacks can be accepted. When no replica did for LivenessGap, they start anew: leases
// that went by in between don't count.
func (s *Store) beat(ctx context.Context) error {
	ticker := time.NewTicker(s.cfg.LivenessEvery)
	defer ticker.Stop()
	for {
		err := s.inTx(ctx, s.rest, s.alive)
		if err != nil && ctx.Err() == nil {
			s.cfg.Log.Debug("The database doesn't take the liveness row.", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (s *Store) alive(ctx context.Context, t *tx) error {
	gap := s.cfg.LivenessGap.Seconds()
	_, err := t.exec(ctx, `INSERT INTO liveness (id, up_since, seen_at) VALUES (1, `+s.d.now+`, `+s.d.now+`)
		ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at,
			up_since = CASE WHEN `+s.d.plus("liveness.seen_at")+` < excluded.seen_at THEN excluded.up_since ELSE liveness.up_since END`, gap)
	if err != nil || s.cfg.Replica == "" {
		return err
	}
	_, err = t.exec(ctx, `INSERT INTO replicas (name, version, started_at, seen_at) VALUES (?, ?, `+s.d.now+`, `+s.d.now+`)
		ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at, version = excluded.version`, s.cfg.Replica, s.cfg.Version)
	return err
}
