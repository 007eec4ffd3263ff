package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
)

// ServeConfig says what [Serve] serves.
type ServeConfig struct {
	Listener net.Listener
	Handler  http.Handler
	// Grace is how long requests that are being answered may take after the stop; 20 s if zero.
	Grace time.Duration
	// ReadHeaderTimeout (10 s), ReadTimeout (60 s), WriteTimeout (60 s) and IdleTimeout (2 min) bound each connection.
	ReadHeaderTimeout, ReadTimeout, WriteTimeout, IdleTimeout time.Duration
	// MaxHeaderBytes bounds the header of a request; 64 KiB if zero.
	MaxHeaderBytes int
	// Log takes what the HTTP server says of broken connections.
	Log *zap.Logger
}

// Listen opens a TCP listener. An address that can't be used is a [UsageError].
func Listen(ctx context.Context, address string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, Usagef("listen on %q: %w", address, err)
	}
	return listener, nil
}

// Serve answers requests until ctx ends; then it takes no new connections, lets requests end for Grace, and returns nil.
// It returns an error when the listener fails. It closes the listener. Requests don't see the end of ctx, but that of Grace.
func Serve(ctx context.Context, cfg ServeConfig) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server := &http.Server{
		Handler:           cfg.Handler,
		ReadHeaderTimeout: or(cfg.ReadHeaderTimeout, 10*time.Second),
		ReadTimeout:       or(cfg.ReadTimeout, time.Minute),
		WriteTimeout:      or(cfg.WriteTimeout, time.Minute),
		IdleTimeout:       or(cfg.IdleTimeout, 2*time.Minute),
		MaxHeaderBytes:    or(cfg.MaxHeaderBytes, 64<<10),
		BaseContext:       func(net.Listener) context.Context { return base },
	}
	if cfg.Log != nil {
		var err error
		if server.ErrorLog, err = zap.NewStdLogAt(cfg.Log, zap.DebugLevel); err != nil {
			return fmt.Errorf("make the log of the HTTP server: %w", err)
		}
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(cfg.Listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve on %s: %w", cfg.Listener.Addr(), err)
	case <-ctx.Done():
	}
	grace, stop := context.WithTimeout(base, or(cfg.Grace, 20*time.Second))
	defer stop()
	if err := server.Shutdown(grace); err != nil {
		cancel()
		_ = server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", cfg.Listener.Addr(), err)
	}
	return nil
}

func or[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}
