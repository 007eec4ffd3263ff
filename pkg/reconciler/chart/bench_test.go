package chart_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/reconciler/chart"
)

// hundred is a chart of 100 objects of the usual kinds and sizes.
func hundred(b *testing.B) string {
	b.Helper()
	files := map[string]string{
		"values.yaml": "image: example.com/app:1.0\nreplicas: 2\n",
		"templates/_helpers.tpl": `{{- define "labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}`,
	}
	for i := range 25 {
		files[fmt.Sprintf("templates/part%d.yaml", i)] = fmt.Sprintf(`{{- $name := printf "%%s-%d" .Release.Name }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ $name }}, labels: {{ include "labels" . | fromYaml | toJson }}}
data: {config.yaml: {{ .Values | toYaml | quote }}}
---
apiVersion: v1
kind: Service
metadata: {name: {{ $name }}, labels: {{ include "labels" . | fromYaml | toJson }}}
spec: {ports: [{port: 80, targetPort: 8080, name: http}], selector: {app: {{ $name }}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: {{ $name }}, labels: {{ include "labels" . | fromYaml | toJson }}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  labels: {{- include "labels" . | nindent 4 }}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ $name }}}}
  template:
    metadata:
      labels: {app: {{ $name }}}
      annotations: {checksum: {{ .Values | toYaml | sha256sum }}}
    spec:
      serviceAccountName: {{ $name }}
      containers:
        - name: app
          image: {{ .Values.image | quote }}
          ports: [{containerPort: 8080, name: http}]
          env: [{name: NAME, value: {{ $name | quote }}}, {name: NAMESPACE, value: {{ .Release.Namespace }}}]
          readinessProbe: {httpGet: {path: /healthz, port: http}}
          resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {cpu: 100m, memory: 64Mi}}
          securityContext: {runAsNonRoot: true, allowPrivilegeEscalation: false}
`, i)
	}
	return writeChart(b, files)
}

func BenchmarkRender100Objects(b *testing.B) {
	req := request(hundred(b))
	r := newRenderer(b, chart.Config{})
	result, err := r.Render(b.Context(), req)
	require.NoError(b, err)
	require.Len(b, result.Objects, 100)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Render(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDigest(b *testing.B) {
	req := request(hundred(b))
	old := time.Now().Add(-time.Hour) // what is quite new isn't kept
	require.NoError(b, filepath.WalkDir(req.Dir, func(path string, _ fs.DirEntry, err error) error {
		require.NoError(b, err)
		return os.Chtimes(path, old, old)
	}))
	r := newRenderer(b, chart.Config{})
	for name, digest := range map[string]func(chart.Request, string) (string, error){"plain": chart.Digest, "kept": r.Digest} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := digest(req, chart.EngineVersion); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
