// Package kubeconfig reads the text of a kubeconfig and keeps of it only what a connection to the cluster needs: of the
// current context (or the only one) the server, CA data, tls-server-name, client certificate and key data, token, user
// and password. It is pure: it opens no file, runs no program, contacts nothing and links no Kubernetes client, so that
// a service that only stores kubeconfigs can check them too.
//
// No error of this package contains a part of the text.
package kubeconfig

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// MaxBytes is the largest text that is read.
const MaxBytes = 1 << 20

// Error says what is wrong with a kubeconfig, without a word of its content. It never heals by itself.
type Error struct{ Problem string }

func (e *Error) Error() string { return "invalid kubeconfig: " + e.Problem }

// Options are what an operator may allow beyond the safe minimum.
type Options struct {
	// AllowInsecure keeps insecure-skip-tls-verify; otherwise it is dropped and the certificate is checked.
	AllowInsecure bool
	// AllowProxy keeps proxy-url; otherwise it is dropped.
	AllowProxy bool
	// AllowImpersonation keeps as, as-uid, as-groups and as-user-extra; otherwise they are dropped.
	AllowImpersonation bool
}

// Access is what is left of a kubeconfig. It is a secret as a whole: it prints as ***.
type Access struct {
	Server        string
	CAData        []byte
	TLSServerName string
	Insecure      bool
	ProxyURL      string

	ClientCertData []byte
	ClientKeyData  []byte
	Token          string
	Username       string
	Password       string

	ImpersonateUser   string
	ImpersonateUID    string
	ImpersonateGroups []string
	ImpersonateExtra  map[string][]string
}

// String hides the content.
func (*Access) String() string { return hidden }

// GoString hides the content from %#v.
func (*Access) GoString() string { return hidden }

// MarshalJSON hides the content.
func (*Access) MarshalJSON() ([]byte, error) { return []byte(`"` + hidden + `"`), nil }

// Scrub returns the kubeconfig with nothing in it but one cluster, one user and one context, each with the fields that
// Parse keeps. Equal input gives equal output. The error is an *Error.
func Scrub(text string, opts Options) (Kubeconfig, error) {
	access, err := Parse(text, opts)
	if err != nil {
		return "", err
	}
	return access.Kubeconfig()
}

// Parse reads the current context, or the only one. A user or cluster that needs a program, an auth provider or a file
// is refused, since dropping those would leave another identity. The error is an *Error.
func Parse(text string, opts Options) (*Access, error) {
	cluster, user, err := choose(text)
	if err != nil {
		return nil, err
	}
	access := &Access{
		TLSServerName: cluster.TLSServerName,
		Insecure:      cluster.Insecure && opts.AllowInsecure,
		Token:         user.Token,
		Username:      user.Username,
		Password:      user.Password,
	}
	if access.Server, err = server(cluster.Server); err != nil {
		return nil, err
	}
	if opts.AllowProxy && cluster.ProxyURL != "" {
		if access.ProxyURL, err = proxy(cluster.ProxyURL); err != nil {
			return nil, err
		}
	}
	if opts.AllowImpersonation {
		access.ImpersonateUser, access.ImpersonateUID = user.As, user.AsUID
		access.ImpersonateGroups, access.ImpersonateExtra = user.AsGroups, user.AsUserExtra
	}
	if access.CAData, err = pemData("certificate-authority-data", cluster.CAData); err != nil {
		return nil, err
	}
	if access.Insecure {
		access.CAData = nil // both together are refused by TLS clients
	}
	if access.ClientCertData, err = pemData("client-certificate-data", user.ClientCertData); err != nil {
		return nil, err
	}
	if access.ClientKeyData, err = pemData("client-key-data", user.ClientKeyData); err != nil {
		return nil, err
	}
	if (access.ClientCertData == nil) != (access.ClientKeyData == nil) {
		return nil, &Error{"client-certificate-data and client-key-data must come together"}
	}
	if strings.ContainsAny(access.Token, "\r\n") {
		return nil, &Error{"the token has a line break in it"}
	}
	return access, nil
}

type file struct {
	Kind           string         `json:"kind,omitempty"`
	APIVersion     string         `json:"apiVersion,omitempty"`
	CurrentContext string         `json:"current-context"`
	Clusters       []namedCluster `json:"clusters"`
	Contexts       []namedContext `json:"contexts"`
	Users          []namedUser    `json:"users"`
}

type namedCluster struct {
	Name    string  `json:"name"`
	Cluster cluster `json:"cluster"`
}

type namedContext struct {
	Name    string `json:"name"`
	Context struct {
		Cluster string `json:"cluster"`
		User    string `json:"user"`
	} `json:"context"`
}

type namedUser struct {
	Name string `json:"name"`
	User user   `json:"user"`
}

type cluster struct {
	Server        string `json:"server"`
	CAData        string `json:"certificate-authority-data,omitempty"`
	CAFile        string `json:"certificate-authority,omitempty"`
	TLSServerName string `json:"tls-server-name,omitempty"`
	Insecure      bool   `json:"insecure-skip-tls-verify,omitempty"`
	ProxyURL      string `json:"proxy-url,omitempty"`
}

type user struct {
	ClientCertData string              `json:"client-certificate-data,omitempty"`
	ClientCertFile string              `json:"client-certificate,omitempty"`
	ClientKeyData  string              `json:"client-key-data,omitempty"`
	ClientKeyFile  string              `json:"client-key,omitempty"`
	Token          string              `json:"token,omitempty"`
	TokenFile      string              `json:"tokenFile,omitempty"`
	Username       string              `json:"username,omitempty"`
	Password       string              `json:"password,omitempty"`
	As             string              `json:"as,omitempty"`
	AsUID          string              `json:"as-uid,omitempty"`
	AsGroups       []string            `json:"as-groups,omitempty"`
	AsUserExtra    map[string][]string `json:"as-user-extra,omitempty"`
	Exec           json.RawMessage     `json:"exec,omitempty"`
	AuthProvider   json.RawMessage     `json:"auth-provider,omitempty"`
}

// choose finds the cluster and the user of the context that counts.
func choose(text string) (cluster, user, error) {
	f, err := read(text)
	if err != nil {
		return cluster{}, user{}, err
	}
	ctx, err := f.context()
	if err != nil {
		return cluster{}, user{}, err
	}
	var (
		chosenCluster *cluster
		chosenUser    user
	)
	for i := range f.Clusters {
		if f.Clusters[i].Name == ctx.Context.Cluster {
			chosenCluster = &f.Clusters[i].Cluster
			break
		}
	}
	if chosenCluster == nil {
		return cluster{}, user{}, &Error{"the context names a cluster that is not in it"}
	}
	if ctx.Context.User != "" {
		found := false
		for _, u := range f.Users {
			if u.Name == ctx.Context.User {
				chosenUser, found = u.User, true
				break
			}
		}
		if !found {
			return cluster{}, user{}, &Error{"the context names a user that is not in it"}
		}
	}
	return *chosenCluster, chosenUser, refuseDropped(*chosenCluster, chosenUser)
}

func read(text string) (*file, error) {
	if strings.TrimSpace(text) == "" {
		return nil, &Error{"it is empty"}
	}
	if len(text) > MaxBytes {
		return nil, &Error{fmt.Sprintf("it is larger than %d bytes", MaxBytes)}
	}
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return nil, &Error{"it is not YAML" + line(err)}
	}
	if trimmed := bytes.TrimSpace(asJSON); len(trimmed) == 0 || trimmed[0] != '{' {
		return nil, &Error{"it is not a YAML mapping"}
	}
	f := &file{}
	if err := json.Unmarshal(asJSON, f); err != nil {
		return nil, &Error{"a field has the wrong type" + fieldOf(err)}
	}
	return f, nil
}

// line tells where a YAML error is; the rest of its text may hold content.
func line(err error) string {
	if m := regexp.MustCompile(`\bline (\d+)`).FindStringSubmatch(err.Error()); m != nil {
		return " (line " + m[1] + ")"
	}
	return ""
}

func fieldOf(err error) string {
	typeErr := &json.UnmarshalTypeError{}
	if errors.As(err, &typeErr) && typeErr.Field != "" {
		return " (" + typeErr.Field + ")"
	}
	return ""
}

func (f *file) context() (namedContext, error) {
	if f.Kind != "" && f.Kind != "Config" {
		return namedContext{}, &Error{"its kind is not Config"}
	}
	if f.CurrentContext == "" {
		switch len(f.Contexts) {
		case 0:
			return namedContext{}, &Error{"it has no context"}
		case 1:
			return f.Contexts[0], nil
		default:
			return namedContext{}, &Error{"it has no current-context, and more than one context"}
		}
	}
	for _, c := range f.Contexts {
		if c.Name == f.CurrentContext {
			return c, nil
		}
	}
	return namedContext{}, &Error{"current-context names a context that is not in it"}
}

func refuseDropped(c cluster, u user) error {
	switch {
	case present(u.Exec):
		return &Error{"the user needs a program (exec), which is not run here; use a token or a client certificate"}
	case present(u.AuthProvider):
		return &Error{"the user needs an auth-provider, which is not supported; use a token or a client certificate"}
	case u.TokenFile != "":
		return &Error{"the user refers to a file (tokenFile); put the token itself into it"}
	case u.ClientCertFile != "":
		return &Error{"the user refers to a file (client-certificate); use client-certificate-data"}
	case u.ClientKeyFile != "":
		return &Error{"the user refers to a file (client-key); use client-key-data"}
	case c.CAFile != "":
		return &Error{"the cluster refers to a file (certificate-authority); use certificate-authority-data"}
	}
	return nil
}

func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

func server(text string) (string, error) {
	if text == "" {
		return "", &Error{"the cluster has no server"}
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		return "", &Error{"the server is not a URL"}
	case u.Scheme != "https":
		return "", &Error{"the server is not https"}
	case u.User != nil:
		return "", &Error{"the server has a user in its URL"}
	case u.RawQuery != "" || u.Fragment != "":
		return "", &Error{"the server has a query or a fragment in its URL"}
	}
	return strings.TrimRight(u.String(), "/"), nil
}

func proxy(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5") {
		return "", &Error{"proxy-url is not an http, https or socks5 URL"}
	}
	return text, nil
}

// pemData decodes a field that holds PEM in base64.
func pemData(field, text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return nil, &Error{field + " is not base64"}
	}
	if block, _ := pem.Decode(data); block == nil {
		return nil, &Error{field + " holds no PEM block"}
	}
	return data, nil
}

// Kubeconfig writes the access as a kubeconfig again.
func (a *Access) Kubeconfig() (Kubeconfig, error) {
	const name = "default"
	f := file{Kind: "Config", APIVersion: "v1", CurrentContext: name}
	f.Clusters = []namedCluster{{Name: name, Cluster: cluster{
		Server: a.Server, CAData: base64.StdEncoding.EncodeToString(a.CAData), TLSServerName: a.TLSServerName,
		Insecure: a.Insecure, ProxyURL: a.ProxyURL,
	}}}
	f.Users = []namedUser{{Name: name, User: user{
		ClientCertData: base64.StdEncoding.EncodeToString(a.ClientCertData),
		ClientKeyData:  base64.StdEncoding.EncodeToString(a.ClientKeyData),
		Token:          a.Token, Username: a.Username, Password: a.Password,
		As: a.ImpersonateUser, AsUID: a.ImpersonateUID, AsGroups: a.ImpersonateGroups, AsUserExtra: a.ImpersonateExtra,
	}}}
	ctx := namedContext{Name: name}
	ctx.Context.Cluster, ctx.Context.User = name, name
	f.Contexts = []namedContext{ctx}
	text, err := yaml.Marshal(f)
	if err != nil {
		return "", &Error{"it cannot be written again"}
	}
	return Kubeconfig(text), nil
}

// Digest tells two accesses apart without giving either away. It is for keys in memory; it is not stored.
func (a *Access) Digest() string {
	text, err := a.Kubeconfig()
	if err != nil {
		return ""
	}
	sum := sha256.Sum256([]byte(text.Reveal()))
	return hex.EncodeToString(sum[:])
}
