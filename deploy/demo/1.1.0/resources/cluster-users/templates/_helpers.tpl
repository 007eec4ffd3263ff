{{- define "cluster-users.selectorLabels" -}}
app.kubernetes.io/name: cluster-users
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cluster-users.labels" -}}
{{ include "cluster-users.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: kyma-demo
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
