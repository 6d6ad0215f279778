{{- /* Generated from the kustomizations by make generate. Do not edit. */ -}}
{{- define "holdfast.affinity" -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
  - podAffinityTerm:
      labelSelector:
        matchLabels:
          app.kubernetes.io/name: holdfast
      topologyKey: kubernetes.io/hostname
    weight: 100
{{- end -}}
