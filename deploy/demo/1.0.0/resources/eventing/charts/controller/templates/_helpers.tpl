{{- define "controller.selectorLabels" -}}
app.kubernetes.io/name: eventing-controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "controller.labels" -}}
{{ include "controller.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: kyma-demo
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
