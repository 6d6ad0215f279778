{{- define "type_members" -}}
{{- if eq .Name "metadata" -}}
Standard object metadata.
{{- else -}}
{{ markdownRenderFieldDoc .Doc | replace "<br />" " " | replace "<" "&lt;" }}
{{- end -}}
{{- end -}}
