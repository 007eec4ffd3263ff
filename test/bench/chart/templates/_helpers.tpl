{{- define "bench.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}
{{- define "bench.pod" -}}
metadata:
  labels:
    app: {{ .name }}
    {{- include "bench.labels" .root | nindent 4 }}
  annotations:
    checksum/config: {{ toYaml .root.Values.global | sha256sum }}
spec:
  serviceAccountName: {{ .root.Release.Name }}-0
  securityContext: {runAsNonRoot: true, runAsUser: 1000}
  containers:
    - name: server
      image: {{ .root.Values.image }}
      args: ["--domain={{ .root.Values.global.domainName }}", "--listen=:8080"]
      env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: PASSWORD, valueFrom: {secretKeyRef: {name: {{ .root.Release.Name }}-0, key: password}}}
      ports: [{name: http, containerPort: 8080}]
      readinessProbe: {httpGet: {path: /ready, port: http}, periodSeconds: 5}
      resources: {{- toYaml .root.Values.resources | nindent 8 }}
      volumeMounts: [{name: config, mountPath: /etc/bench}]
  volumes:
    - name: config
      configMap: {name: {{ .root.Release.Name }}-0}
{{- end }}
{{- define "bench.meta" -}}
metadata:
  name: {{ .name }}
  {{- if not .global }}
  namespace: {{ .root.Release.Namespace }}
  {{- end }}
  labels: {{- include "bench.labels" .root | nindent 4 }}
  {{- if .pods }}
  annotations: {reconciler.kyma-project.io/ignore-pod-state: "true"}
  {{- end }}
{{- end }}
