package kubeconfig_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"sigs.k8s.io/yaml"

	"github.com/kyma-incubator/reconciler/pkg/kube/kubeconfig"
)

const secret = "hunter2"

func pemOf(kind string) string {
	block := fmt.Sprintf("-----BEGIN %[1]s-----\naHVudGVyMg==\n-----END %[1]s-----\n", kind)
	return base64.StdEncoding.EncodeToString([]byte(block))
}

func config(cluster, user string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: main
contexts:
- {name: other, context: {cluster: none, user: none}}
- {name: main, context: {cluster: c, user: u, namespace: x}}
clusters:
- name: c
  cluster: %s
users:
- name: u
  user: %s
`, cluster, user)
}

func TestScrub(t *testing.T) {
	t.Parallel()
	text := config(
		fmt.Sprintf(`{server: "https://api.example.com:443/", certificate-authority-data: %s, tls-server-name: name,
    insecure-skip-tls-verify: true, proxy-url: "http://proxy.example.com", disable-compression: true, extensions: []}`, pemOf("CERTIFICATE")),
		fmt.Sprintf(`{token: %s, username: joe, password: pw, client-certificate-data: %s, client-key-data: %s, as: root, as-groups: [g], exec: null}`,
			secret, pemOf("CERTIFICATE"), pemOf("PRIVATE KEY")))

	t.Run("only what a connection needs stays", func(t *testing.T) {
		t.Parallel()
		scrubbed, err := kubeconfig.Scrub(text, kubeconfig.Options{})
		require.NoError(t, err)
		out := map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte(scrubbed.Reveal()), &out))
		require.Equal(t, map[string]any{
			"apiVersion": "v1", "kind": "Config", "current-context": "default",
			"contexts": []any{map[string]any{"name": "default", "context": map[string]any{"cluster": "default", "user": "default"}}},
			"clusters": []any{map[string]any{"name": "default", "cluster": map[string]any{
				"server": "https://api.example.com:443", "certificate-authority-data": pemOf("CERTIFICATE"), "tls-server-name": "name",
			}}},
			"users": []any{map[string]any{"name": "default", "user": map[string]any{
				"token": secret, "username": "joe", "password": "pw",
				"client-certificate-data": pemOf("CERTIFICATE"), "client-key-data": pemOf("PRIVATE KEY"),
			}}},
		}, out)
		again, err := kubeconfig.Scrub(scrubbed.Reveal(), kubeconfig.Options{})
		require.NoError(t, err)
		require.Equal(t, scrubbed.Reveal(), again.Reveal())
	})

	t.Run("what an operator allows stays", func(t *testing.T) {
		t.Parallel()
		access, err := kubeconfig.Parse(text, kubeconfig.Options{AllowInsecure: true, AllowProxy: true, AllowImpersonation: true})
		require.NoError(t, err)
		require.True(t, access.Insecure)
		require.Empty(t, access.CAData)
		require.Equal(t, "http://proxy.example.com", access.ProxyURL)
		require.Equal(t, "root", access.ImpersonateUser)
		require.Equal(t, []string{"g"}, access.ImpersonateGroups)
	})

	t.Run("the only context counts where none is current", func(t *testing.T) {
		t.Parallel()
		_, err := kubeconfig.Scrub(`{contexts: [{name: x, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "https://x"}}]}`,
			kubeconfig.Options{})
		require.NoError(t, err)
	})

	t.Run("JSON is taken too", func(t *testing.T) {
		t.Parallel()
		raw, err := yaml.YAMLToJSON([]byte(text))
		require.NoError(t, err)
		a, err := kubeconfig.Parse(string(raw), kubeconfig.Options{})
		require.NoError(t, err)
		b, err := kubeconfig.Parse(text, kubeconfig.Options{})
		require.NoError(t, err)
		require.Equal(t, a.Digest(), b.Digest())
	})

	t.Run("digests tell tokens apart", func(t *testing.T) {
		t.Parallel()
		a, err := kubeconfig.Parse(config(`{server: "https://x"}`, `{token: a}`), kubeconfig.Options{})
		require.NoError(t, err)
		b, err := kubeconfig.Parse(config(`{server: "https://x"}`, `{token: b}`), kubeconfig.Options{})
		require.NoError(t, err)
		require.NotEqual(t, a.Digest(), b.Digest())
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	const good = `{server: "https://x"}`
	tests := map[string]struct{ text, problem string }{
		"empty":               {" \n", "it is empty"},
		"W9 broken YAML":      {"users:\n- token: " + secret + "\n  \tx: " + secret, "it is not YAML"},
		"W9 text":             {secret, "not a YAML mapping"},
		"a list":              {"[" + secret + "]", "not a YAML mapping"},
		"W9 wrong type":       {"users: " + secret, "wrong type (users)"},
		"W9 number for text":  {config(good, "{token: [hunter2]}"), "wrong type"},
		"another kind":        {"kind: Secret" + secret, "its kind is not Config"},
		"no context":          {"kind: Config", "no context"},
		"no current context":  {strings.Replace(config(good, "{}"), "current-context: main", "", 1), "no current-context"},
		"unknown context":     {strings.Replace(config(good, "{}"), "current-context: main", "current-context: "+secret, 1), "current-context names a context"},
		"unknown cluster":     {strings.Replace(config(good, "{}"), "cluster: c,", "cluster: "+secret+",", 1), "names a cluster"},
		"unknown user":        {strings.Replace(config(good, "{}"), "user: u,", "user: "+secret+",", 1), "names a user"},
		"no server":           {config("{}", "{}"), "no server"},
		"http":                {config(`{server: "http://`+secret+`"}`, "{}"), "not https"},
		"no URL":              {config(`{server: "https:// `+secret+`"}`, "{}"), "not a URL"},
		"a bare host":         {config(`{server: "`+secret+`"}`, "{}"), "not a URL"},
		"user in URL":         {config(`{server: "https://u:`+secret+`@x"}`, "{}"), "user in its URL"},
		"query in URL":        {config(`{server: "https://x?`+secret+`"}`, "{}"), "query"},
		"exec":                {config(good, `{token: x, exec: {command: `+secret+`}}`), "(exec)"},
		"auth-provider":       {config(good, `{auth-provider: {name: `+secret+`}}`), "auth-provider"},
		"tokenFile":           {config(good, `{tokenFile: /`+secret+`}`), "tokenFile"},
		"client-certificate":  {config(good, `{client-certificate: /`+secret+`}`), "client-certificate"},
		"client-key":          {config(good, `{client-key: /`+secret+`}`), "client-key"},
		"CA file":             {config(`{server: "https://x", certificate-authority: /`+secret+`}`, "{}"), "certificate-authority"},
		"CA no base64":        {config(`{server: "https://x", certificate-authority-data: "%`+secret+`"}`, "{}"), "not base64"},
		"CA no PEM":           {config(`{server: "https://x", certificate-authority-data: aHVudGVyMg==}`, "{}"), "no PEM"},
		"key without cert":    {config(good, `{client-key-data: `+pemOf("PRIVATE KEY")+`}`), "must come together"},
		"line break in token": {config(good, `{token: "`+secret+`\nx"}`), "line break"},
		"too large":           {strings.Repeat("#", kubeconfig.MaxBytes+1), "larger than"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := kubeconfig.Scrub(tc.text, kubeconfig.Options{})
			var bad *kubeconfig.Error
			require.ErrorAs(t, err, &bad)
			require.ErrorContains(t, err, tc.problem)
			require.NotContains(t, err.Error(), secret)
		})
	}
}

func TestSecretsPrintAsStars(t *testing.T) {
	t.Parallel()
	k := kubeconfig.Kubeconfig(secret)
	access, err := kubeconfig.Parse(config(`{server: "https://`+secret+`"}`, `{token: `+secret+`}`), kubeconfig.Options{})
	require.NoError(t, err)
	asJSON, err := json.Marshal(map[string]any{"k": k, "a": access})
	require.NoError(t, err)
	core, logs := observer.New(zapcore.DebugLevel)
	log := zap.New(core)
	log.Info("x", zap.Any("k", k), zap.Stringer("s", k), zap.Any("a", access), zap.Reflect("r", k), zap.Object("o", k))
	var encoded strings.Builder
	for _, entry := range logs.All() {
		buf, err := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()).EncodeEntry(entry.Entry, entry.Context)
		require.NoError(t, err)
		encoded.WriteString(buf.String())
	}
	for what, text := range map[string]string{
		"print": fmt.Sprint(k, access), "%+v": fmt.Sprintf("%+v %+v", k, access), "%#v": fmt.Sprintf("%#v %#v", k, access),
		"%q": fmt.Sprintf("%q", k), "%s in a struct": fmt.Sprintf("%+v", struct{ K kubeconfig.Kubeconfig }{k}),
		"JSON": string(asJSON), "log": encoded.String(),
	} {
		require.NotContains(t, text, secret, what)
		require.Contains(t, text, "***", what)
	}
	require.Equal(t, secret, k.Reveal())
}
