package kube

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/kyma-incubator/reconciler/pkg/kube/kubeconfig"
)

// ErrTooLarge is the error of an answer that is larger than Config.MaxAnswerBytes.
var ErrTooLarge = errors.New("the answer of the Kubernetes API is too large")

// newTransport returns what every request to one cluster goes through: the connection pool with its dial-time checks,
// and around it the credentials, the write guard, and the rules for answers.
func newTransport(access *kubeconfig.Access, cfg Config) (http.RoundTripper, *http.Transport, error) {
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: access.TLSServerName}
	if access.Insecure {
		tlsConfig.InsecureSkipVerify = true // only where the operator allowed it
	}
	if len(access.CAData) > 0 {
		tlsConfig.RootCAs = x509.NewCertPool()
		if !tlsConfig.RootCAs.AppendCertsFromPEM(access.CAData) {
			return nil, nil, &kubeconfig.Error{Problem: "certificate-authority-data holds no certificate"}
		}
	}
	if len(access.ClientCertData) > 0 {
		pair, err := tls.X509KeyPair(access.ClientCertData, access.ClientKeyData)
		if err != nil {
			return nil, nil, &kubeconfig.Error{Problem: "client certificate and key do not fit"}
		}
		tlsConfig.Certificates = []tls.Certificate{pair}
	}
	pool := &http.Transport{
		DialContext:           dialer(cfg.AllowLoopback, cfg.DialTimeout),
		TLSClientConfig:       tlsConfig,
		TLSHandshakeTimeout:   cfg.DialTimeout,
		ResponseHeaderTimeout: cfg.RequestTimeout,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   cfg.Parallel,
		IdleConnTimeout:       cfg.IdleTimeout,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: cfg.PingInterval, PingTimeout: cfg.DialTimeout},
	}
	if access.ProxyURL != "" {
		proxyURL, err := url.Parse(access.ProxyURL)
		if err != nil {
			return nil, nil, &kubeconfig.Error{Problem: "proxy-url is not a URL"}
		}
		pool.Proxy = http.ProxyURL(proxyURL)
	}
	var base http.RoundTripper = pool
	if cfg.Wrap != nil {
		base = cfg.Wrap(base)
	}
	server, err := url.Parse(access.Server)
	if err != nil {
		return nil, nil, &kubeconfig.Error{Problem: "the server is not a URL"}
	}
	return &transport{base: base, access: access, host: server.Host, maxAnswer: cfg.MaxAnswerBytes}, pool, nil
}

type transport struct {
	base      http.RoundTripper
	access    *kubeconfig.Access
	host      string
	maxAnswer int64
}

// String keeps the credentials out of anything that prints the transport.
func (*transport) String() string { return "kube transport" }

// GoString keeps the credentials out of %#v.
func (*transport) GoString() string { return "kube transport" }

// RoundTrip asks the write guard, adds the credentials (for the cluster's own host only), turns redirects into errors,
// strips Retry-After, so that no client library waits and repeats by itself, and limits the size of the answer.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := checkGuard(req); err != nil {
		return nil, err
	}
	if req.URL.Scheme != "https" || req.URL.Host != t.host {
		return nil, fmt.Errorf("%w: not the cluster's own https address", ErrAddressRefused)
	}
	resp, err := t.base.RoundTrip(t.authorize(req))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 && resp.StatusCode != http.StatusNotModified {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("the Kubernetes API answered with a redirect (%d), which is not followed", resp.StatusCode)
	}
	resp.Header.Del("Retry-After")
	if req.URL.Query().Get("watch") == "" {
		resp.Body = &limitedBody{ReadCloser: resp.Body, left: t.maxAnswer}
	}
	return resp, nil
}

func (t *transport) authorize(req *http.Request) *http.Request {
	req = req.Clone(req.Context())
	req.Header.Del("Authorization")
	switch {
	case t.access.Token != "":
		req.Header.Set("Authorization", "Bearer "+t.access.Token)
	case t.access.Username != "" || t.access.Password != "":
		req.SetBasicAuth(t.access.Username, t.access.Password)
	}
	if t.access.ImpersonateUser != "" {
		req.Header.Set("Impersonate-User", t.access.ImpersonateUser)
		if t.access.ImpersonateUID != "" {
			req.Header.Set("Impersonate-Uid", t.access.ImpersonateUID)
		}
		for _, group := range t.access.ImpersonateGroups {
			req.Header.Add("Impersonate-Group", group)
		}
		for key, values := range t.access.ImpersonateExtra {
			for _, value := range values {
				req.Header.Add("Impersonate-Extra-"+url.PathEscape(key), value)
			}
		}
	}
	return req
}

type limitedBody struct {
	io.ReadCloser
	left int64
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, ErrTooLarge
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return 0, ErrTooLarge
	}
	return n, err
}
