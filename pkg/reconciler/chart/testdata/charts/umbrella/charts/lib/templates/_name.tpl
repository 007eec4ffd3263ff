{{- define "lib.name" -}}
{{ .Release.Name }}-{{ .Values.global.domainName }}
{{- end -}}
