package daemon

import (
	"net"
	"net/http"
	"time"
)

// ClientConfig bounds an HTTP client; zero values take the defaults.
type ClientConfig struct {
	// Timeout bounds a whole request with its answer; 30 s if zero.
	Timeout time.Duration
	// DialTimeout bounds connecting, and once more the TLS handshake; 5 s if zero.
	DialTimeout time.Duration
	// MaxPerHost bounds the connections to one host, all kept alive; 64 if zero.
	MaxPerHost int
	// IdleTimeout is how long an unused connection is kept; 30 s if zero, less than servers keep theirs.
	IdleTimeout time.Duration
}

// NewHTTPClient returns a client for calls between our own programs: connections are kept alive, every step has a deadline,
// redirects aren't followed (the answer is the redirect itself) and no proxy is taken from the environment.
// Close its idle connections when it is no longer needed.
func NewHTTPClient(cfg ClientConfig) *http.Client {
	dial := or(cfg.DialTimeout, 5*time.Second)
	perHost := or(cfg.MaxPerHost, 64)
	return &http.Client{
		Timeout: or(cfg.Timeout, 30*time.Second),
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: dial, KeepAlive: 15 * time.Second}).DialContext,
			TLSHandshakeTimeout:    dial,
			MaxIdleConns:           8 * perHost,
			MaxIdleConnsPerHost:    perHost,
			MaxConnsPerHost:        perHost,
			IdleConnTimeout:        or(cfg.IdleTimeout, 30*time.Second),
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
