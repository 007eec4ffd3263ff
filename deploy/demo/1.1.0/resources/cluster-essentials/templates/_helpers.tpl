{{- define "cluster-essentials.selectorLabels" -}}
app.kubernetes.io/name: cluster-essentials
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cluster-essentials.labels" -}}
{{ include "cluster-essentials.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: kyma-demo
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
