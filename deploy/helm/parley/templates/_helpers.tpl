{{- define "parley.name" -}}{{ .Release.Name }}{{- end -}}

{{/* The secret between gateways: the chart's own, unless another one is named. */}}
{{- define "parley.peers" -}}{{ .Values.secrets.peers | default (printf "%s-gateway-peers" .Release.Name) }}{{- end -}}

{{/* A value as the text that was written. YAML has numbers and booleans where Kubernetes takes text alone, and Helm's numbers
     of a file are floating: 1048576 would become 1.048576e+06. */}}
{{- define "parley.text" -}}
{{- if kindIs "invalid" . }}{{ else if and (kindIs "float64" .) (eq . (floor .)) }}{{ printf "%.0f" . }}{{ else }}{{ toString . }}{{ end -}}
{{- end -}}

{{/* Names with their texts: settings, annotations, labels. */}}
{{- define "parley.texts" -}}
{{- range $name, $value := . }}
{{- if not (kindIs "invalid" $value) }}
{{ $name | quote }}: {{ include "parley.text" $value | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "parley.image" -}}
{{- $tag := include "parley.text" .Values.image.tag -}}
{{ .Values.image.repository }}:{{ $tag | default .Chart.AppVersion }}
{{- end -}}

{{/* Priority classes belong to the whole cluster. */}}
{{- define "parley.warm" -}}{{ .Release.Namespace }}-{{ .Release.Name }}-warm{{- end -}}

{{/* Where workers may run. */}}
{{- define "parley.workerNodes" -}}
nodeSelector: {{- if not .Values.worker.nodeSelector }} {}{{ end }}{{- include "parley.texts" .Values.worker.nodeSelector | indent 2 }}
tolerations: {{- toYaml .Values.worker.tolerations | nindent 2 }}
{{- end -}}

{{/* Settings of a worker and of the watcher beside it; the last one of a name counts. */}}
{{- define "parley.workerEnv" -}}
- {name: PARLEY_WATCH, value: {{ ternary "/run/parley/watch.sock" .Values.worker.watch (eq .Values.worker.watch "sidecar") | quote }}}
{{- range $name, $value := .Values.worker.env }}
{{- if not (kindIs "invalid" $value) }}
- {name: {{ $name }}, value: {{ include "parley.text" $value | quote }}}
{{- end }}
{{- end }}
{{- with .Values.worker.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "parley.workerResources" -}}
requests: {{- toYaml .Values.worker.resources.requests | nindent 2 }}
limits:
  {{- toYaml .Values.worker.resources.limits | nindent 2 }}
  {{- with .Values.worker.gpu }}
  {{- if .enabled }}
  {{ .resource }}: {{ int64 .count }}
  {{- end }}
  {{- end }}
{{- end -}}

{{- define "parley.account" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default .Release.Name }}{{ else }}{{ .Values.serviceAccount.name }}{{ end }}
{{- end -}}

{{- define "parley.pod" -}}
automountServiceAccountToken: false
# A service named parley-gateway would become PARLEY_GATEWAY_PORT=tcp://..., which is a setting.
enableServiceLinks: false
{{- with include "parley.account" . }}
serviceAccountName: {{ . }}
{{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "parley.container" -}}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{- define "parley.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if .Values.policy }}
- {name: policy, mountPath: /etc/parley, readOnly: true}
{{- end }}
{{- end -}}

{{- define "parley.volumes" -}}
- {name: tmp, emptyDir: {}}
{{- if .Values.policy }}
- name: policy
  configMap: {name: {{ include "parley.name" . }}-policy}
{{- end }}
{{- end -}}
