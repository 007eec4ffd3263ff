package reconciler

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// errNoLog is the error for an operation without kept log lines.
var errNoLog = errors.New("no log lines of this operation are kept here")

// operationLogs keeps the log lines of operations in one file each, for a while. The zero directory keeps none.
type operationLogs struct {
	dir      string
	maxBytes int64
	total    int64
	maxAge   time.Duration
	log      *zap.Logger

	mu    sync.Mutex
	inuse map[string]int // files in use, which a sweep leaves
}

func openLogs(cfg Config) (*operationLogs, error) {
	l := &operationLogs{
		dir: cfg.LogDir, maxBytes: cfg.LogMaxBytes, total: cfg.LogTotalBytes, maxAge: cfg.LogMaxAge, log: cfg.Log,
		inuse: map[string]int{},
	}
	if l.dir == "" {
		return l, nil
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, fmt.Errorf("logs of operations: %w", err)
	}
	return l, nil
}

func (l *operationLogs) path(correlationID string) string {
	return filepath.Join(l.dir, digestOf(correlationID)+".log")
}

// of returns what takes an operation's lines. The file is opened with the first.
func (l *operationLogs) of(correlationID string) *operationLog {
	o := &operationLog{logs: l}
	if l.dir != "" {
		o.path = l.path(correlationID)
	}
	return o
}

// read returns the lines of an operation, or errNoLog.
func (l *operationLogs) read(correlationID string) (string, error) {
	if l.dir == "" {
		return "", errNoLog
	}
	text, err := os.ReadFile(l.path(correlationID))
	if errors.Is(err, fs.ErrNotExist) {
		return "", errNoLog
	}
	if err != nil {
		return "", fmt.Errorf("log of the operation: %w", err)
	}
	return string(text), nil
}

// run removes what is too old or too much, until ctx ends.
func (l *operationLogs) run(ctx context.Context) {
	if l.dir == "" {
		return
	}
	ticker := time.NewTicker(max(min(l.maxAge/10, 5*time.Minute), 10*time.Millisecond))
	defer ticker.Stop()
	for {
		if err := l.sweep(time.Now()); err != nil {
			l.log.Warn("old logs of operations were not removed", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (l *operationLogs) sweep(now time.Time) error {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return err
	}
	var files []fs.FileInfo
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() && filepath.Ext(info.Name()) == ".log" {
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	var sum int64
	var failed error
	for _, file := range files {
		path := filepath.Join(l.dir, file.Name())
		sum += file.Size()
		if now.Sub(file.ModTime()) <= l.maxAge && sum <= l.total || l.inUse(path) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = err
		}
	}
	return failed
}

func (l *operationLogs) inUse(path string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inuse[path] > 0
}

// operationLog takes the lines of one task, up to the limit of its file.
type operationLog struct {
	logs *operationLogs

	mu   sync.Mutex
	path string // empty: no lines are kept
	file *os.File
	left int64
}

// Write implements zapcore.WriteSyncer. It never fails: that lines can't be kept must not stop the work.
func (o *operationLog) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.path == "" || o.file == nil && !o.open() || o.left <= 0 {
		return len(p), nil
	}
	line := p
	if o.left -= int64(len(p)); o.left < 0 {
		o.left, line = 0, []byte("… the rest is not kept\n")
	}
	if _, err := o.file.Write(line); err != nil {
		o.left = 0
	}
	return len(p), nil
}

func (o *operationLog) open() bool {
	file, err := os.OpenFile(o.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		o.logs.log.Warn("the log of an operation is not kept", zap.Error(err))
		o.path = ""
		return false
	}
	o.file, o.left = file, o.logs.maxBytes
	if info, err := file.Stat(); err == nil {
		o.left -= info.Size()
	}
	o.logs.mu.Lock()
	defer o.logs.mu.Unlock()
	o.logs.inuse[o.path]++
	return true
}

// Sync implements zapcore.WriteSyncer.
func (*operationLog) Sync() error { return nil }

func (o *operationLog) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file != nil {
		_ = o.file.Close()
		o.logs.mu.Lock()
		defer o.logs.mu.Unlock()
		if o.logs.inuse[o.path]--; o.logs.inuse[o.path] <= 0 {
			delete(o.logs.inuse, o.path)
		}
	}
	o.file, o.path = nil, ""
}

// logger returns the logger of the task's lines: with its IDs, once each, without its secrets, and also into the last
// lines and into the file that is kept.
func (j *job) logger() *zap.Logger {
	encoder := zapcore.NewJSONEncoder(zapcore.EncoderConfig{
		TimeKey: "time", LevelKey: "level", MessageKey: "msg", LineEnding: zapcore.DefaultLineEnding,
		EncodeLevel: zapcore.LowercaseLevelEncoder, EncodeTime: zapcore.RFC3339NanoTimeEncoder,
		EncodeDuration: zapcore.StringDurationEncoder,
	})
	level := zapcore.InfoLevel
	if j.wire.ComponentConfiguration.Debug {
		level = zapcore.DebugLevel
	}
	fields := []zap.Field{
		zap.String("correlation-id", j.wire.CorrelationID), zap.String("scheduling-id", j.wire.SchedulingID),
		zap.String("component", j.wire.Component), zap.String("runtime-id", j.wire.RuntimeID), zap.Int64("attempt", j.wire.Attempt),
	}
	file := zapcore.NewCore(encoder.Clone(), j.file, level).With(fields)
	// The last lines go to where the IDs are known.
	lines := zapcore.NewCore(encoder.Clone(), j.lines, level)
	return j.cfg.Log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return &scrubCore{Core: zapcore.NewTee(core.With(fields), lines, file), scrub: j.scrub}
	}))
}
