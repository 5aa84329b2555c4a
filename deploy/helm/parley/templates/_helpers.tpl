{{- define "parley.name" -}}{{ .Release.Name }}{{- end -}}

{{- define "parley.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "parley.pod" -}}
automountServiceAccountToken: false
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
