package daemon

import (
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// LogConfig says how a program logs.
type LogConfig struct {
	// Format is json (the default) or text; all lines of a process have it.
	Format string
	// Level is debug, info (the default), warn or error.
	Level string
}

// NewLogger returns a logger that writes whole lines to w, which may be used from several goroutines.
// An unknown format or level is a [UsageError].
func NewLogger(cfg LogConfig, w io.Writer) (*zap.Logger, error) {
	level := zapcore.InfoLevel
	if cfg.Level != "" {
		var err error
		if level, err = zapcore.ParseLevel(cfg.Level); err != nil || level > zapcore.ErrorLevel {
			return nil, &UsageError{Err: fmt.Errorf("--log-level %q: want debug, info, warn or error", cfg.Level)}
		}
	}
	fields := zapcore.EncoderConfig{
		TimeKey: "time", LevelKey: "level", NameKey: "logger", MessageKey: "msg", StacktraceKey: "stacktrace",
		LineEnding: zapcore.DefaultLineEnding, EncodeLevel: zapcore.LowercaseLevelEncoder, EncodeDuration: zapcore.StringDurationEncoder,
		EncodeTime: func(t time.Time, enc zapcore.PrimitiveArrayEncoder) {
			enc.AppendString(t.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
		},
	}
	var encoder zapcore.Encoder
	switch cfg.Format {
	case "", "json":
		encoder = zapcore.NewJSONEncoder(fields)
	case "text":
		encoder = zapcore.NewConsoleEncoder(fields)
	default:
		return nil, &UsageError{Err: fmt.Errorf("--log-format %q: want json or text", cfg.Format)}
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level)), nil
}
