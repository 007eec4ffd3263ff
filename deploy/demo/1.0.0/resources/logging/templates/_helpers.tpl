{{- define "logging.selectorLabels" -}}
app.kubernetes.io/name: logging
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "logging.labels" -}}
{{ include "logging.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: kyma-demo
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
