{{- define "certificates.selectorLabels" -}}
app.kubernetes.io/name: certificates
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "certificates.labels" -}}
{{ include "certificates.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: kyma-demo
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
