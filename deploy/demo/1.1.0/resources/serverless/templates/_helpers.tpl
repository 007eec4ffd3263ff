{{- define "serverless.selectorLabels" -}}
app.kubernetes.io/name: serverless
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "serverless.labels" -}}
{{ include "serverless.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: kyma-demo
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
