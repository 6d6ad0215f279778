{{/* The operator's image. A digest decides where there is one; the tag is for people then. */}}
{{- define "holdfast.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end -}}

{{/* Flags of the operator that values ask for. */}}
{{- define "holdfast.args" -}}
{{- with .Values.watchNamespaces }}
- {{ printf "--watch-namespaces=%s" (join "," .) | quote }}
{{- end }}
{{- range $engine := list "postgres" "mysql" "etcd" }}
{{- with index $.Values.databaseImages $engine }}
- {{ printf "--%s-image-repository=%s" $engine . | quote }}
{{- end }}
{{- end }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Where the operator's pods run. */}}
{{- define "holdfast.scheduling" -}}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- if .Values.affinity }}
affinity:
  {{- toYaml .Values.affinity | nindent 2 }}
{{- else if .Values.highAvailability.enabled }}
affinity:
  {{- include "holdfast.affinity" . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Ports of the API server, in the operator's NetworkPolicy. */}}
{{- define "holdfast.apiServerPorts" -}}
{{- range .Values.networkPolicy.apiServerPorts }}
- port: {{ . }}
  protocol: TCP
{{- end }}
{{- end -}}
