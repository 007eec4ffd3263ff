{{- define "eventing.selectorLabels" -}}
app.kubernetes.io/name: eventing
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "eventing.labels" -}}
{{ include "eventing.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: kyma-demo
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
