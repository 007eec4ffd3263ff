{{- define "nats.selectorLabels" -}}
app.kubernetes.io/name: eventing-nats
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "nats.labels" -}}
{{ include "nats.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: kyma-demo
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
