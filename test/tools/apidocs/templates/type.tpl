{{- define "type" -}}
{{- $type := . -}}
{{- if markdownShouldRenderType $type }}
### {{ $type.Name }}

{{ $type.Doc | replace "<" "&lt;" }}
{{ if $type.IsAlias }}
Type: {{ markdownRenderTypeLink $type.UnderlyingType }}.
{{ end }}
{{- if $type.References }}
Used by:
{{- range $i, $t := $type.SortedReferences }}{{ if $i }},{{ end }} {{ markdownRenderTypeLink $t }}{{ end }}.
{{ end }}
{{- if $type.Members }}
| Field | Description | Default | Validation |
| --- | --- | --- | --- |
{{ if $type.GVK -}}
| `apiVersion` _string_ | `{{ $type.GVK.Group }}/{{ $type.GVK.Version }}` | | |
| `kind` _string_ | `{{ $type.GVK.Kind }}` | | |
{{ end -}}
{{ range $type.Members -}}
| `{{ .Name }}` _{{ markdownRenderType .Type }}_ | {{ template "type_members" . }} | {{ with .Default }}`{{ . }}`{{ end }} | {{ template "validation" .Validation }} |
{{ end -}}
{{ end -}}
{{ if $type.EnumValues }}
| Value | Description |
| --- | --- |
{{ range $type.EnumValues -}}
| `{{ .Name }}` | {{ markdownRenderFieldDoc .Doc | replace "<br />" " " | replace "<" "&lt;" }} |
{{ end -}}
{{ end -}}
{{- end -}}
{{- end -}}
{{- define "validation" -}}
{{- $shown := list -}}
{{- range . -}}
{{- if hasPrefix "Required:" . }}{{ $shown = append $shown "Required" }}
{{- else if or (hasPrefix "Optional:" .) (hasPrefix "Schemaless:" .) (hasPrefix "XIntOrString:" .) (contains "XValidation:" .) (hasPrefix "XPreserveUnknownFields:" .) }}
{{- else }}{{ $shown = append $shown (markdownRenderFieldDoc .) }}
{{- end -}}
{{- end -}}
{{ join "<br />" $shown }}
{{- end -}}
